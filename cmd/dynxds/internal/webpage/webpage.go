// Package webpage serves the status page of a command, on loopback unless the user names
// another address.
package webpage

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/dynxds/dynxds/statuspage"
)

// DefaultAddress is what the flag --page means without an address: a free port on loopback.
const DefaultAddress = "127.0.0.1:0"

// Page is a page that is served until Close is called.
type Page struct {
	// URL is its address.
	URL string
	// Open says that it can be reached from other machines.
	Open bool

	server  *http.Server
	serving sync.WaitGroup
}

// Serve serves the page of the process at an address, "host:port". Without a host that is
// loopback: other addresses have to be named. If the host is a DNS name, the page may be opened
// under it.
func Serve(address string, opts ...statuspage.Option) (*Page, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("--page %q: want HOST:PORT, such as %s: %w", address, DefaultAddress, err)
	}
	if host == "" {
		host = "127.0.0.1"
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(host, port))
	if err != nil {
		return nil, fmt.Errorf("--page %s: %w", address, err)
	}
	p := &Page{URL: "http://" + listener.Addr().String() + "/"}
	if tcp, ok := listener.Addr().(*net.TCPAddr); ok {
		p.Open = !tcp.IP.IsLoopback()
	}
	if _, err := netip.ParseAddr(host); err != nil {
		_, port, _ := net.SplitHostPort(listener.Addr().String())
		p.URL = "http://" + net.JoinHostPort(host, port) + "/"
		opts = append(opts, statuspage.AllowHosts(host))
	}
	p.server = &http.Server{Handler: statuspage.Handler(opts...), ReadHeaderTimeout: 10 * time.Second}
	p.serving.Go(func() {
		if err := p.server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			_ = p.server.Close() // The listener failed: nobody can open the page any more.
		}
	})
	return p, nil
}

// Close ends the page. Browsers that show it are told so.
func (p *Page) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if p.server.Shutdown(ctx) != nil {
		_ = p.server.Close()
	}
	p.serving.Wait()
}
