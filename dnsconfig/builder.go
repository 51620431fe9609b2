package dnsconfig

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	_ "google.golang.org/grpc" // registers the "dns" resolver
	"google.golang.org/grpc/grpclog"
	"google.golang.org/grpc/resolver"
)

// Scheme is the scheme of targets that the package resolves.
const Scheme = "dnsconfig"

// language is the client language that choices know this implementation by.
const language = "go"

var logger = grpclog.Component("dnsconfig")

func init() { resolver.Register(NewBuilder(Options{})) }

// Options change how service configs are looked up. The zero value is what the
// registered scheme uses.
type Options struct {
	// MinInterval is the least time between the end of a look-up that DNS
	// answered and the next; 30 seconds if zero, as in gRPC's "dns" resolver.
	MinInterval time.Duration
	// Timeout bounds one look-up; 10 seconds if zero. A channel waits that long
	// at most for its first service config before it starts without.
	Timeout time.Duration
	// Hostname is what clientHostname is compared to; os.Hostname if empty.
	Hostname string
	// OnResult, if not nil, is told of every look-up, before the channel is. It
	// is called by one goroutine of the channel's resolver, and holds it up.
	OnResult func(*Result)
}

func (o Options) withDefaults() Options {
	if o.MinInterval == 0 {
		o.MinInterval = 30 * time.Second
	}
	if o.Timeout == 0 {
		o.Timeout = 10 * time.Second
	}
	if o.Hostname == "" {
		name, err := os.Hostname()
		if err != nil {
			logger.Warningf("no choice with %s can match: %v", fieldHostname, err)
		}
		o.Hostname = name
	}
	return o
}

// NewBuilder returns a resolver builder of the scheme "dnsconfig".
func NewBuilder(options Options) resolver.Builder { return builder{options} }

type builder struct{ options Options }

// Scheme implements resolver.Builder.
func (builder) Scheme() string { return Scheme }

// Build implements resolver.Builder. The target's authority, if there is one, is
// the address of the DNS server to ask, with port 53 unless it says another;
// its endpoint is a host with an optional port, 443 unless it says another.
func (b builder) Build(target resolver.Target, cc resolver.ClientConn, opts resolver.BuildOptions) (resolver.Resolver, error) {
	dns := resolver.Get("dns")
	if dns == nil {
		return nil, errors.New(`dnsconfig: no resolver is registered for the scheme "dns"`)
	}
	lookup, err := newLookup(target.URL.Host)
	if err != nil {
		return nil, fmt.Errorf("dnsconfig: target %q: %v", target.String(), err)
	}
	host := hostOf(target.Endpoint())
	lookUp := !opts.DisableServiceConfig && enabled() && hasConfig(host)
	// Otherwise gRPC would look the same records up by its own rules.
	opts.DisableServiceConfig = true
	if !lookUp {
		return dns.Build(dnsTarget(target), cc, opts)
	}
	return newJoint(jointConfig{
		cc:      cc,
		target:  target,
		opts:    opts,
		dns:     dns,
		lookup:  lookup,
		name:    Prefix + host,
		options: b.options.withDefaults(),
	})
}

// goroutine is a goroutine that can be told to end.
type goroutine struct {
	cancel context.CancelFunc
	ended  chan struct{}
}

// startGoroutine runs f, which returns when its context ends.
func startGoroutine(f func(context.Context)) goroutine {
	ctx, cancel := context.WithCancel(context.Background())
	g := goroutine{cancel: cancel, ended: make(chan struct{})}
	go func() {
		defer close(g.ended)
		f(ctx)
	}()
	return g
}

// stop returns when the goroutine has ended.
func (g goroutine) stop() {
	g.cancel()
	<-g.ended
}
