package xdstest

import (
	"context"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
)

// Proxy is an HTTP CONNECT proxy. It is safe for concurrent use.
type Proxy struct {
	server *httptest.Server
	// ctx ends when the proxy stops, and open has what copies between connections until then.
	ctx  context.Context
	open sync.WaitGroup

	mu      sync.Mutex
	tunnels map[string]int
}

// StartProxy starts a Proxy that stops, with its tunnels, at the end of the test.
func StartProxy(t testing.TB) *Proxy {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	p := &Proxy{ctx: ctx, tunnels: make(map[string]int)}
	p.server = httptest.NewServer(http.HandlerFunc(p.connect))
	t.Cleanup(func() {
		stop()
		p.server.Close()
		p.open.Wait()
	})
	return p
}

// Addr returns the proxy's "host:port".
func (p *Proxy) Addr() string { return p.server.Listener.Addr().String() }

// Tunnels returns how many tunnels the proxy has opened to each "host:port".
func (p *Proxy) Tunnels() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.tunnels)
}

func (p *Proxy) connect(w http.ResponseWriter, request *http.Request) {
	if request.Method != http.MethodConnect || request.RequestURI != request.Host {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	p.mu.Lock()
	p.tunnels[request.Host]++
	p.mu.Unlock()
	endpoint, err := net.Dial("tcp", request.Host)
	if err != nil {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	defer endpoint.Close()
	p.open.Add(1) // The server does not wait for handlers that have hijacked their connections.
	defer p.open.Done()
	client, _, err := w.(http.Hijacker).Hijack() // nothing is buffered: the client waits for the answer
	if err != nil {
		return
	}
	defer client.Close()
	defer context.AfterFunc(p.ctx, func() {
		client.Close()
		endpoint.Close()
	})()
	io.WriteString(client, "HTTP/1.1 200 Connection established\r\n\r\n")
	join(client, endpoint)
}
