// Package webpage serves the status page of a command, and its other pages, on loopback unless the user
// names another address.
package webpage

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/mesh/internal/admission"
	"github.com/dynxds/dynxds/mesh/statuspage"
)

// DefaultAddress is what the flag --page means without an address: a free port on loopback.
const DefaultAddress = "127.0.0.1:0"

// writeTime bounds how long an answer takes, and with it the memory of those that nobody reads.
const writeTime = time.Minute

// Page is a page that is served until Close is called.
type Page struct {
	// URL is its address.
	URL string
	// Addr is the "host:port" that is listened on, with the host as it was named.
	Addr string
	// Open says that it can be reached from other machines.
	Open bool

	server  *http.Server
	serving sync.WaitGroup
}

// Serve serves the status page of the process, as Open does with the flag --page.
func Serve(address string, opts ...statuspage.Option) (*Page, error) {
	return Open("--page", address, func(hosts []string, _ bool) http.Handler {
		return statuspage.Handler(append(opts, statuspage.AllowHosts(hosts...))...)
	})
}

// Open serves pages at an address of a flag, "host:port". Without a host that is loopback: other
// addresses have to be named. If the host is a DNS name, it is among hosts, which the pages may be
// opened under besides IP addresses and localhost. open is Page.Open.
func Open(flag, address string, handler func(hosts []string, open bool) http.Handler) (*Page, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("%s %q: want HOST:PORT, such as %s: %w", flag, address, DefaultAddress, err)
	}
	if host == "" {
		host = "127.0.0.1"
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(host, port))
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", flag, address, err)
	}
	var hosts []string
	if _, err := netip.ParseAddr(host); err != nil {
		hosts = append(hosts, strings.ToLower(host))
	}
	at := listener.Addr().(*net.TCPAddr)
	p := &Page{Addr: net.JoinHostPort(host, strconv.Itoa(at.Port)), Open: !at.IP.IsLoopback()}
	p.URL = "http://" + p.Addr + "/"
	p.server = &http.Server{
		Handler: handler(hosts, p.Open), ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second,
		WriteTimeout: writeTime, IdleTimeout: time.Minute, MaxHeaderBytes: 64 << 10,
	}
	gate := admission.New(admission.Options{Connections: bounds.PageConnections})
	p.serving.Go(func() {
		if err := p.server.Serve(gate.Listen(listener)); !errors.Is(err, http.ErrServerClosed) {
			_ = p.server.Close() // The listener failed: the page cannot be opened any more.
		}
	})
	return p, nil
}

// Close ends the page, after the answers that are being made.
func (p *Page) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if p.server.Shutdown(ctx) != nil {
		_ = p.server.Close()
	}
	p.serving.Wait()
}
