package resolver

import (
	"sync"

	estats "google.golang.org/grpc/experimental/stats"
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
// lists all errors of the bootstrap.
func NewBuilder(bootstrapJSON []byte) (grpcresolver.Builder, error) {
	config, err := bootstrap.Parse(inMemory, bootstrapJSON)
	if err != nil {
		return nil, err
	}
	return &builder{scheme: scheme, config: func() (*bootstrap.Config, error) { return config, nil }}, nil
}

// Builders returns the builders of both schemes, for a bootstrap in memory or, if it is nil,
// that of the environment: see Register.
func Builders(bootstrapJSON []byte) []grpcresolver.Builder {
	config := bootstrap.FromEnv
	if bootstrapJSON != nil {
		config = sync.OnceValues(func() (*bootstrap.Config, error) { return bootstrap.Parse(inMemory, bootstrapJSON) })
	}
	return []grpcresolver.Builder{
		&builder{scheme: scheme, config: config, environment: bootstrapJSON == nil},
		&builder{scheme: aliasScheme, config: config, environment: bootstrapJSON == nil},
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

// inMemory names a bootstrap in memory in its errors.
const inMemory = "in-memory bootstrap"

// builder implements grpcbridge.Builder.
type builder struct {
	scheme string
	config func() (*bootstrap.Config, error)
	// environment: config reads the environment, which may change.
	environment bool
}

var _ grpcbridge.Builder = (*builder)(nil)

// Scheme implements resolver.Builder.
func (b *builder) Scheme() string { return b.scheme }

// BridgedToDynxds implements grpcbridge.Builder.
func (*builder) BridgedToDynxds() {}

// Build implements resolver.Builder. It starts to watch the target's Listener and returns. An
// error of the bootstrap or of the target fails the channel's RPCs; but a bootstrap
// of the environment may be fixed while the channel is open. Without a bootstrap, DNS resolves the target.
func (b *builder) Build(target grpcresolver.Target, cc grpcresolver.ClientConn, opts grpcresolver.BuildOptions) (grpcresolver.Resolver, error) {
	return b.build(target, cc, opts, dpdswrapper.Acquire)
}

// acquire returns the client of a bootstrap; see dpdswrapper.Acquire.
type acquire func(config *bootstrap.Config, target string, recorder estats.MetricsRecorder) (client xdsclient.Client, release func(), err error)

func (b *builder) build(target grpcresolver.Target, cc grpcresolver.ClientConn, opts grpcresolver.BuildOptions, acquire acquire) (grpcresolver.Resolver, error) {
	channel, err := grpcbridge.Attach(cc)
	if err != nil {
		return nil, err
	}
	r := &channelResolver{
		builder: b, acquire: acquire, target: target, cc: cc, opts: opts, channel: channel,
		usesXDS: grpcbridge.UsesXDS(opts.DialCreds, opts.CredsBundle),
		record:  channels.RecordOf(channel.ClientConn()),
	}
	r.start()
	return r, nil
}

// secure reports whether the channel's credentials check the authority of RPCs, as TLS does.
func secure(opts grpcresolver.BuildOptions) bool {
	creds := opts.DialCreds
	if opts.CredsBundle != nil {
		creds = opts.CredsBundle.TransportCredentials()
	}
	return creds != nil && creds.Info().SecurityProtocol != "insecure"
}
