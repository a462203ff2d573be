//! The codecs under chance: any split of the input gives the same items, what is encoded is decoded,
//! limits are exact at the byte, and no more is kept than a limit allows.

mod codecs {
    mod chance;
    mod custom;
    mod limits;
}
