package lookup

import (
	"fmt"
	"net/url"
	"sync"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/serviceconfig"
)

// run looks the name up once. It reports whether there is an answer with addresses.
func (l *lookup) run() bool {
	a := &attempt{lookup: l, done: make(chan struct{})}
	target := resolver.Target{URL: url.URL{Scheme: "dns", Path: "/" + l.name}}
	r, err := resolver.Get("dns").Build(target, a, resolver.BuildOptions{DisableServiceConfig: true})
	if err != nil {
		l.answer(nil, err)
		return false
	}
	// No other goroutine calls the resolver: it may call back from within Build, and its
	// Close waits for such a call to return.
	defer r.Close()
	select {
	case <-a.done:
		if a.empty {
			l.emptied()
		}
		return a.ok
	case <-l.ctx.Done():
		return false
	}
}

// attempt is the resolver.ClientConn of one look-up. The first report ends it; later ones
// count too while the name is watched.
type attempt struct {
	lookup *lookup
	once   sync.Once
	done   chan struct{}
	// ok says that the first report had addresses, empty that it was an answer without any.
	ok, empty bool
}

func (a *attempt) end(ok, empty bool) {
	a.once.Do(func() {
		a.ok, a.empty = ok, empty
		close(a.done)
	})
}

// UpdateState implements resolver.ClientConn.
func (a *attempt) UpdateState(s resolver.State) error {
	var addresses []string
	for _, e := range s.Endpoints {
		for _, address := range e.Addresses {
			addresses = append(addresses, address.Addr)
		}
	}
	if len(s.Endpoints) == 0 {
		for _, address := range s.Addresses {
			addresses = append(addresses, address.Addr)
		}
	}
	a.lookup.answer(addresses, nil)
	a.end(len(addresses) > 0, len(addresses) == 0)
	if len(addresses) == 0 {
		return balancer.ErrBadResolverState
	}
	return nil
}

// ReportError implements resolver.ClientConn.
func (a *attempt) ReportError(err error) {
	a.lookup.answer(nil, err)
	a.end(false, false)
}

// NewAddress implements resolver.ClientConn.
//
// Deprecated: resolvers call UpdateState.
func (a *attempt) NewAddress(addresses []resolver.Address) {
	_ = a.UpdateState(resolver.State{Addresses: addresses})
}

// ParseServiceConfig implements resolver.ClientConn.
func (a *attempt) ParseServiceConfig(string) *serviceconfig.ParseResult {
	return &serviceconfig.ParseResult{Err: fmt.Errorf("the look-up of %q does not use service configs", a.lookup.name)}
}
