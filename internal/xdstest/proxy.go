package xdstest

import (
	"bufio"
	"io"
	"maps"
	"net"
	"net/http"
	"sync"
	"testing"
)

// Proxy is an HTTP CONNECT proxy. It is safe for concurrent use.
type Proxy struct {
	listener net.Listener
	wg       sync.WaitGroup

	mu      sync.Mutex
	refusal string
	tunnels map[string]int
	conns   map[net.Conn]struct{}
	closed  bool
}

// StartProxy starts a Proxy that stops, with its tunnels, at the end of the test.
func StartProxy(t testing.TB) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	NoError(t, err)
	p := &Proxy{listener: l, tunnels: make(map[string]int), conns: make(map[net.Conn]struct{})}
	p.wg.Go(p.serve)
	t.Cleanup(p.stop)
	return p
}

// Addr returns the proxy's "host:port".
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Refuse has the proxy answer CONNECT with a status such as "403 Forbidden"; "" ends that.
func (p *Proxy) Refuse(status string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refusal = status
}

// Tunnels returns how many tunnels the proxy has opened to each "host:port".
func (p *Proxy) Tunnels() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.tunnels)
}

func (p *Proxy) stop() {
	p.listener.Close()
	p.mu.Lock()
	p.closed = true
	for c := range p.conns {
		c.Close()
	}
	p.mu.Unlock()
	p.wg.Wait()
}

func (p *Proxy) serve() {
	for {
		conn, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.wg.Go(func() { p.handle(conn) })
	}
}

// keep has stop close conn. It reports false if the proxy has stopped.
func (p *Proxy) keep(conn net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns[conn] = struct{}{}
	return !p.closed
}

func (p *Proxy) drop(conn net.Conn) {
	conn.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, conn)
}

func (p *Proxy) handle(client net.Conn) {
	defer p.drop(client)
	if !p.keep(client) {
		return
	}
	r := bufio.NewReader(client)
	request, err := http.ReadRequest(r)
	if err != nil {
		return
	}
	status := p.admit(request)
	if status != "" {
		io.WriteString(client, "HTTP/1.1 "+status+"\r\nContent-Length: 0\r\n\r\n")
		return
	}
	endpoint, err := net.Dial("tcp", request.Host)
	if err != nil {
		io.WriteString(client, "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n")
		return
	}
	defer p.drop(endpoint)
	if !p.keep(endpoint) {
		return
	}
	io.WriteString(client, "HTTP/1.1 200 Connection established\r\n\r\n")
	p.wg.Go(func() {
		io.Copy(endpoint, r)
		endpoint.Close()
	})
	io.Copy(client, endpoint)
}

// admit returns the status of a refusal, or counts the tunnel.
func (p *Proxy) admit(request *http.Request) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.refusal != "":
		return p.refusal
	case request.Method != http.MethodConnect || request.RequestURI != request.Host:
		return "400 Bad Request"
	}
	p.tunnels[request.Host]++
	return ""
}
