// Go's net/http against the HTTP server: keep-alive, 100-continue, bodies of unknown length, trailers. Argument: the URL.
package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"os"
	"strings"
	"time"
)

var base = os.Args[1]
var reused, continued int

// Without proxies of the environment. One connection at a time.
var client = &http.Client{
	Timeout: 60 * time.Second,
	Transport: &http.Transport{
		MaxConnsPerHost:       1,
		ExpectContinueTimeout: 30 * time.Second,
	},
}

func check(holds bool, what string, got any) {
	if !holds {
		fmt.Printf("%s: %.300v\n", what, got)
		os.Exit(1)
	}
}

// ask sends a request and reads the whole answer.
func ask(method, path string, body io.Reader, header ...string) (int, string, *http.Response) {
	request, err := http.NewRequest(method, base+path, body)
	check(err == nil, "request", err)
	for i := 0; i+1 < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	trace := &httptrace.ClientTrace{
		GotConn: func(info httptrace.GotConnInfo) {
			if info.Reused {
				reused++
			}
		},
		Got100Continue: func() { continued++ },
	}
	answer, err := client.Do(request.WithContext(httptrace.WithClientTrace(request.Context(), trace)))
	check(err == nil, method+" "+path, err)
	defer answer.Body.Close()
	all, err := io.ReadAll(answer.Body)
	check(err == nil, "the body of "+path, err)
	return answer.StatusCode, string(all), answer
}

// unknown hides the length of a reader, so that the body is sent in chunks.
type unknown struct{ io.Reader }

func main() {
	status, text, answer := ask("GET", "/", nil)
	check(status == 200 && text == "hello" && answer.ContentLength == 5, "GET", text)
	status, text, answer = ask("GET", "/chunks", nil)
	check(status == 200 && text == "part part part " && answer.ContentLength == -1, "chunks", text)
	status, text, _ = ask("HEAD", "/", nil)
	check(status == 200 && text == "", "HEAD", text)
	check(reused == 2, "connections are kept", reused)

	long := strings.Repeat("0123456789abcdef", 20000)
	for _, path := range []string{"/echo", "/pull"} {
		status, text, _ = ask("PUT", path, strings.NewReader(long))
		check(status == 200 && text == long, "a body of known length to "+path, text)
		status, text, _ = ask("PUT", path, unknown{strings.NewReader(long)})
		check(status == 200 && text == long, "a body in chunks to "+path, text)
		before := continued
		status, text, _ = ask("PUT", path, strings.NewReader(long), "Expect", "100-continue")
		check(status == 200 && text == long, "a body behind 100 to "+path, text)
		check(continued == before+1, "100 comes once", continued-before)
	}

	// The body is refused before it is sent: the client has no 100, and goes on with another connection.
	before := continued
	status, _, answer = ask("POST", "/refused", bytes.NewReader(make([]byte, 100)), "Expect", "100-continue")
	check(status == 413 && continued == before && answer.Close, "413 without 100", status)
	status, text, _ = ask("GET", "/", nil)
	check(status == 200 && text == "hello", "behind a refusal", text)

	// Trailers of a request are dropped.
	request, _ := http.NewRequest("POST", base+"/echo", unknown{strings.NewReader("abc")})
	request.Trailer = http.Header{"X-Sum": {"3"}}
	answer, err := client.Do(request)
	check(err == nil && answer.StatusCode == 200, "a body with trailers", err)
	all, err := io.ReadAll(answer.Body)
	answer.Body.Close()
	check(err == nil && string(all) == "abc", "the body before trailers", string(all))

	status, _, _ = ask("GET", "/panic", nil)
	check(status == 500, "a panic", status)
	status, _, _ = ask("GET", "/none", nil)
	check(status == 404, "no route", status)
	status, _, answer = ask("DELETE", "/", nil)
	check(status == 405 && answer.Header.Get("Allow") != "", "no such method", status)
	status, text, _ = ask("GET", "/long", nil)
	check(status == 200 && len(text) == 1<<20, "a long answer", len(text))
	fmt.Println("done")
}
