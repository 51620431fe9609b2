package dnsconfig

import (
	"cmp"
	"fmt"
	"os"
	"time"

	_ "google.golang.org/grpc" // registers the "dns" resolver
	"google.golang.org/grpc/grpclog"
	"google.golang.org/grpc/resolver"
)

// scheme is that of the targets that the package resolves.
const scheme = "dnsconfig"

// language is the clientLanguage of this implementation.
const language = "go"

var logger = grpclog.Component("dnsconfig")

func init() { resolver.Register(NewBuilder(Options{})) }

// Options change how service configs are looked up. The registered scheme uses the zero value.
type Options struct {
	// MinInterval is the least time between a look-up that DNS answered and the next one;
	// 30 seconds if zero, as in gRPC's "dns" resolver.
	MinInterval time.Duration
	// Timeout bounds one look-up, and so how long a channel waits for its first service
	// config; 10 seconds if zero.
	Timeout time.Duration
	// Hostname is compared to clientHostname; os.Hostname if empty.
	Hostname string
	// OnResult, if not nil, gets the result of every look-up before the channel does. It is
	// called, one call at a time, by the goroutine that looks up, and blocks it.
	OnResult func(*Result)
}

func (o Options) withDefaults() Options {
	o.MinInterval = cmp.Or(o.MinInterval, 30*time.Second)
	o.Timeout = cmp.Or(o.Timeout, 10*time.Second)
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
func (builder) Scheme() string { return scheme }

// Build implements resolver.Builder. The target's authority, if there is one, is the address of
// the DNS server, by default with port 53. Its endpoint is a host, by default with port 443.
func (b builder) Build(target resolver.Target, cc resolver.ClientConn, opts resolver.BuildOptions) (resolver.Resolver, error) {
	dns := resolver.Get("dns") // which gRPC links
	lookup, err := newLookup(target.URL.Host)
	if err != nil {
		return nil, fmt.Errorf("dnsconfig: target %q: %v", target.String(), err)
	}
	host := hostOf(target.Endpoint())
	lookUp := !opts.DisableServiceConfig && enabled() && hasConfig(host)
	// Else gRPC would look up the same records, by its own rules.
	opts.DisableServiceConfig = true
	if !lookUp {
		return dns.Build(dnsTarget(target), cc, opts)
	}
	options := b.options.withDefaults()
	j := &joint{
		ClientConn: cc, target: target, options: options, name: Prefix + host, lookup: lookup, asked: make(chan struct{}, 1),
		client: Client{Language: language, Hostname: options.Hostname, Draw: drawFor(opts)},
	}
	if err := j.start(dns, opts); err != nil {
		return nil, err
	}
	return j, nil
}
