// undici against the HTTP server: pipelined requests on one connection, in their order. Argument: the URL.
const { Client } = require("undici");

const check = (holds, what) => {
  if (!holds) throw new Error(what);
};

(async () => {
  const client = new Client(process.argv[2], { pipelining: 16 });
  let connections = 0;
  client.on("connect", () => connections++);
  const ask = async (path, options = {}) => {
    const { statusCode, body } = await client.request({ path, method: "GET", ...options });
    return [statusCode, await body.text()];
  };
  await ask("/");
  const paths = Array.from({ length: 400 }, (_, number) => ["/", "/chunks", "/none"][number % 3]);
  const answers = await Promise.all(paths.map((path) => ask(path)));
  const wanted = { "/": [200, "hello"], "/chunks": [200, "part part part "], "/none": [404, "not found\n"] };
  answers.forEach((answer, place) => check(String(answer) === String(wanted[paths[place]]), `${place}: ${answer}`));
  check(connections === 1, `${connections} connections`);
  const long = "x".repeat(300000);
  check((await ask("/echo", { method: "POST", body: long }))[1] === long, "a long body");
  check((await ask("/pull", { method: "PUT", body: long }))[1] === long, "a body that is pulled");
  await client.close();
  console.log("done");
})().catch((error) => {
  console.error(error);
  process.exit(1);
});
