package resolver

import (
	"errors"
	"fmt"
	"sync"

	grpcresolver "google.golang.org/grpc/resolver"

	"github.com/dynxds/dynxds/dpdswrapper"
	_ "github.com/dynxds/dynxds/httpfilter/builtin" // Listeners have its filters
	"github.com/dynxds/dynxds/internal/channels"
	"github.com/dynxds/dynxds/internal/grpcbridge"
	"github.com/dynxds/dynxds/xdsclient"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// The schemes of targets that dynxds resolves.
const (
	// Scheme is the scheme of xDS targets in every gRPC language.
	Scheme = "xds"
	// AliasScheme means the same. It is for a process that also links
	// gRPC-Go's own xds package, which registers Scheme as well: the one that
	// is registered last gets it, see Register.
	AliasScheme = "dynxds"
)

func init() {
	grpcbridge.Install(Scheme, AliasScheme)
	grpcbridge.RegisterMetrics(xdsclient.Metrics()...)
}

// Register registers both schemes with gRPC, configured by the environment:
// GRPC_XDS_BOOTSTRAP (a file) or else GRPC_XDS_BOOTSTRAP_CONFIG (its content).
// The environment is read when a channel needs it, and now and then for a channel that
// finds no bootstrap there, or a faulty one. Importing the module's root package calls it.
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

// NewBuilder returns a resolver builder for the scheme "xds" whose bootstrap
// is given in memory, for use with grpc.WithResolvers. Channels with equal
// bootstraps share their connections to management servers, whether they were
// built with it or configured by the environment. The built-in HTTP filters are
// known, with or without the blank import of the module's root package. The error
// lists all faults of the bootstrap.
func NewBuilder(bootstrapJSON []byte) (grpcresolver.Builder, error) {
	config, err := bootstrap.Parse(inMemory, bootstrapJSON)
	if err != nil {
		return nil, err
	}
	grpcbridge.ResolvePerChannel()
	return &builder{scheme: Scheme, config: func() (*bootstrap.Config, error) { return config, nil }}, nil
}

// Builders returns the builders of both schemes, for a bootstrap in memory, or for that
// of the environment if it is nil: see Register. Faults of a bootstrap in memory are
// the error of Build.
func Builders(bootstrapJSON []byte) []grpcresolver.Builder {
	config := bootstrap.FromEnv
	if bootstrapJSON != nil {
		config = sync.OnceValues(func() (*bootstrap.Config, error) { return bootstrap.Parse(inMemory, bootstrapJSON) })
	}
	environment := bootstrapJSON == nil
	return []grpcresolver.Builder{
		&builder{scheme: Scheme, config: config, environment: environment},
		&builder{scheme: AliasScheme, config: config, environment: environment},
	}
}

// SetConstraints sets the dynamic parameter constraints that the program has of its
// own, for all channels, or, if a bootstrap is given, for those with that one; see
// the function of the same name in the module's root package.
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

// inMemory names a bootstrap that comes from the program in its faults.
const inMemory = "in-memory bootstrap"

// builder implements grpcbridge.Builder.
type builder struct {
	scheme string
	config func() (*bootstrap.Config, error)
	// environment: config reads the environment, which changes.
	environment bool
}

var _ grpcbridge.Builder = (*builder)(nil)

// Scheme implements resolver.Builder.
func (b *builder) Scheme() string { return b.scheme }

// BridgedToDynxds implements grpcbridge.Builder.
func (*builder) BridgedToDynxds() {}

// Build implements resolver.Builder. It starts to watch the target's Listener
// and returns. A fault of the bootstrap or of the target is an error, which
// the channel's RPCs fail with too; but if the bootstrap is that of the environment, it
// may be mended while the channel is open, see pending. Without a bootstrap, DNS resolves
// the target.
func (b *builder) Build(target grpcresolver.Target, cc grpcresolver.ClientConn, opts grpcresolver.BuildOptions) (grpcresolver.Resolver, error) {
	channel, err := grpcbridge.Attach(cc)
	if err != nil {
		return nil, err
	}
	record := channels.RecordOf(channel.ClientConn())
	q := &request{
		config: b.config, target: target, cc: cc, opts: opts, channel: channel,
		record: record, dns: newDNSSource(target, cc, opts, channel, record),
	}
	r, err := q.resolve()
	switch {
	case err == nil:
		return r, nil
	case b.environment:
		return newPending(q, err), nil
	default:
		err = q.failure(err)
		grpcbridge.AttachFailed(cc, err)
		return nil, err
	}
}

// request is what a resolver is to be built for.
type request struct {
	config  func() (*bootstrap.Config, error)
	target  grpcresolver.Target
	cc      grpcresolver.ClientConn
	opts    grpcresolver.BuildOptions
	channel *grpcbridge.Channel
	record  *channels.Record
	dns     *dnsSource
}

// failure is err as RPCs see it.
func (q *request) failure(err error) error {
	return fmt.Errorf("dynxds: cannot resolve %q: %w", q.target.String(), err)
}

// resolve builds the resolver by the bootstrap that there is now. The error is
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
	client, release, err := dpdswrapper.Acquire(config)
	if err != nil {
		return nil, err
	}
	detach := client.Attach(q.target.String(), q.opts.MetricsRecorder)
	usesXDS := grpcbridge.UsesXDS(q.opts.DialCreds, q.opts.CredsBundle)
	return newResolver(resolverConfig{
		cc:        q.cc,
		channel:   q.channel,
		client:    client.ForTarget(q.target.String()),
		release:   func() { detach(); release() },
		listener:  listener,
		authority: q.opts.Authority,
		secure:    secure(q.opts),
		usesXDS:   usesXDS,
		metrics:   q.opts.MetricsRecorder,
		policy:    config.DNSFallback,
		noDNS:     usesXDS && !config.DNSFallbackGiven,
		record:    q.record,
		dns:       q.dns,
	}), nil
}

// secure reports whether the channel's credentials check the authority of
// RPCs, as TLS does.
func secure(opts grpcresolver.BuildOptions) bool {
	creds := opts.DialCreds
	if opts.CredsBundle != nil {
		creds = opts.CredsBundle.TransportCredentials()
	}
	return creds != nil && creds.Info().SecurityProtocol != "insecure"
}
