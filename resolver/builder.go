package resolver

import (
	"errors"
	"fmt"
	"sync"

	estats "google.golang.org/grpc/experimental/stats"
	grpcresolver "google.golang.org/grpc/resolver"

	"github.com/dynxds/dynxds/dpdswrapper"
	_ "github.com/dynxds/dynxds/httpfilter/builtin" // Listeners have its filters
	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/internal/channels"
	"github.com/dynxds/dynxds/internal/grpcbridge"
	"github.com/dynxds/dynxds/xdsclient"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// The schemes of targets that dynxds resolves.
const (
	// scheme is the scheme of xDS targets in every gRPC language.
	scheme = "xds"
	// aliasScheme means the same. It is for a process that also links gRPC-Go's own xds
	// package, which registers "xds" too: the one that is registered last gets it, see
	// Register.
	aliasScheme = "dynxds"
)

func init() {
	grpcbridge.Install(scheme, aliasScheme)
	grpcbridge.RegisterMetrics(xdsclient.Metrics()...)
}

// Register registers both schemes with gRPC, configured by the environment:
// GRPC_XDS_BOOTSTRAP (a file) or else GRPC_XDS_BOOTSTRAP_CONFIG (its content). The
// environment is read when a channel needs it, and repeatedly for a channel that finds no
// bootstrap there, or a faulty one. Importing the module's root package calls it.
//
// Like gRPC's own Register it is for init functions and the start of main. In a process that
// links gRPC-Go's xds package too, Go may initialize that one later, which then has the
// scheme "xds"; a call at the start of main takes it back. One error in the log names the
// first channel that dynxds lost.
func Register() {
	for _, b := range Builders(nil) {
		grpcbridge.Register(b)
	}
}

// NewBuilder returns a resolver builder for the scheme "xds" with a bootstrap in memory, for
// grpc.WithResolvers. Channels with equal bootstraps share their connections to management
// servers, also with those configured by the environment. The built-in HTTP filters are
// registered, with or without the blank import of the module's root package. The error
// lists all faults of the bootstrap.
func NewBuilder(bootstrapJSON []byte) (grpcresolver.Builder, error) {
	config, err := bootstrap.Parse(inMemory, bootstrapJSON)
	if err != nil {
		return nil, err
	}
	grpcbridge.ResolvePerChannel()
	return &builder{scheme: scheme, config: func() (*bootstrap.Config, error) { return config, nil }}, nil
}

// Builders returns the builders of both schemes, for a bootstrap in memory or, if it is nil,
// that of the environment: see Register. Build returns the faults of a bootstrap in memory.
func Builders(bootstrapJSON []byte) []grpcresolver.Builder {
	config := bootstrap.FromEnv
	if bootstrapJSON != nil {
		config = sync.OnceValues(func() (*bootstrap.Config, error) { return bootstrap.Parse(inMemory, bootstrapJSON) })
	}
	environment := bootstrapJSON == nil
	return []grpcresolver.Builder{
		&builder{scheme: scheme, config: config, environment: environment},
		&builder{scheme: aliasScheme, config: config, environment: environment},
	}
}

// SetConstraints sets the program's own dynamic parameter constraints for all channels, or
// for those with the given bootstrap; see SetConstraints of the module's root package.
func SetConstraints(constraints dynparam.ByType, bootstrapJSON []byte) error {
	var config *bootstrap.Config // nil: all
	if bootstrapJSON != nil {
		var err error
		if config, err = bootstrap.Parse(inMemory, bootstrapJSON); err != nil {
			return err
		}
	}
	dpdswrapper.SetConstraints(config, constraints)
	return nil
}

// inMemory names a bootstrap in memory in its faults.
const inMemory = "in-memory bootstrap"

// builder implements grpcbridge.Builder.
type builder struct {
	scheme string
	config func() (*bootstrap.Config, error)
	// environment: config reads the environment, which may change.
	environment bool
	acquire     func(*bootstrap.Config, string, estats.MetricsRecorder) (xdsclient.Client, func(), error) // nil: dpdswrapper.Acquire
}

var _ grpcbridge.Builder = (*builder)(nil)

// Scheme implements resolver.Builder.
func (b *builder) Scheme() string { return b.scheme }

// BridgedToDynxds implements grpcbridge.Builder.
func (*builder) BridgedToDynxds() {}

// Build implements resolver.Builder. It starts to watch the target's Listener and returns. A
// fault of the bootstrap or of the target fails Build and the channel's RPCs; but a bootstrap
// of the environment may be fixed while the channel is open, see awaitingBootstrap. Without a
// bootstrap, DNS resolves the target.
func (b *builder) Build(target grpcresolver.Target, cc grpcresolver.ClientConn, opts grpcresolver.BuildOptions) (grpcresolver.Resolver, error) {
	channel, err := grpcbridge.Attach(cc)
	if err != nil {
		return nil, err
	}
	q := newRequest(b, target, cc, opts, channel)
	r, err := q.resolve()
	switch {
	case err == nil:
		return r, nil
	case b.environment:
		return newAwaitingBootstrap(q, err), nil
	default:
		err = q.failure(err)
		grpcbridge.AttachFailed(cc, err)
		return nil, err
	}
}

// request is a request to build a resolver.
type request struct {
	*builder
	target  grpcresolver.Target
	cc      grpcresolver.ClientConn
	opts    grpcresolver.BuildOptions
	channel *grpcbridge.Channel
	record  *channels.Record
	dns     *dnsSource
}

func newRequest(b *builder, target grpcresolver.Target, cc grpcresolver.ClientConn, opts grpcresolver.BuildOptions, channel *grpcbridge.Channel) *request {
	q := &request{builder: b, target: target, cc: cc, opts: opts, channel: channel, record: channels.RecordOf(channel.ClientConn())}
	q.dns = newDNSSource(q)
	return q
}

// failure returns the error of RPCs because of err.
func (q *request) failure(err error) error {
	return fmt.Errorf("dynxds: cannot resolve %s: %w", bounds.Quote(q.target.String()), err)
}

// resolve builds the resolver for the current bootstrap. The error is
// bootstrap.ErrNotConfigured if there is none.
func (q *request) resolve() (*xdsResolver, error) {
	config, err := q.config()
	if err != nil {
		return nil, err
	}
	if q.opts.DisableServiceConfig {
		return nil, errors.New("grpc.WithDisableServiceConfig makes the channel ignore the load-balancing policy that xDS needs; dial without it")
	}
	listener, err := config.ListenerName(q.target.URL.Host, q.target.Endpoint())
	if err != nil {
		return nil, err
	}
	acquire := q.acquire
	if acquire == nil {
		acquire = dpdswrapper.Acquire
	}
	client, release, err := acquire(config, q.target.String(), q.opts.MetricsRecorder)
	if err != nil {
		return nil, err
	}
	usesXDS := grpcbridge.UsesXDS(q.opts.DialCreds, q.opts.CredsBundle)
	return newResolver(resolverConfig{
		request:  q,
		client:   client,
		release:  release,
		listener: listener,
		usesXDS:  usesXDS,
		policy:   config.DNSFallback,
		noDNS:    usesXDS && !config.DNSFallbackGiven,
	}), nil
}

// secure reports whether the channel's credentials check the authority of RPCs, as TLS does.
func secure(opts grpcresolver.BuildOptions) bool {
	creds := opts.DialCreds
	if opts.CredsBundle != nil {
		creds = opts.CredsBundle.TransportCredentials()
	}
	return creds != nil && creds.Info().SecurityProtocol != "insecure"
}
