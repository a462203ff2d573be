// Go's net/http with the service of src/http/works.rs. It ends with its standard input.
package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"
)

func hello(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "hello, world\n") }

func main() {
	file := os.Args[1]
	mux := http.NewServeMux()
	mux.HandleFunc("GET /hello", hello)
	mux.HandleFunc("GET /sleep", func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(20 * time.Millisecond)
		hello(w, r)
	})
	mux.HandleFunc("GET /user/{id}/orders/{number}", func(w http.ResponseWriter, r *http.Request) {
		id, err := strconv.ParseUint(r.PathValue("id"), 10, 64)
		number, other := strconv.ParseUint(r.PathValue("number"), 10, 64)
		if err != nil || other != nil {
			http.Error(w, "no number", http.StatusBadRequest)
			return
		}
		fmt.Fprintf(w, "order %d of user %d\n", number, id)
	})
	mux.HandleFunc("POST /post", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		fmt.Fprintf(w, "%d bytes\n", len(body))
	})
	mux.HandleFunc("GET /file", func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, file) })
	for number := 0; number < 50; number++ {
		mux.HandleFunc(fmt.Sprintf("GET /other/%d/{id}", number), hello)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Printf("listening on %s\n", listener.Addr())
	go func() {
		io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	fmt.Fprintln(os.Stderr, http.Serve(listener, mux))
	os.Exit(1)
}
