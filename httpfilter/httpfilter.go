// Package httpfilter is the API for HTTP filters (gRFC A39): code that runs in
// the path of every RPC of an xDS channel, in the order and with the
// configuration that the control plane sends. Any program can add its own.
//
// # A filter
//
// A filter is known by the protobuf types of its configuration and registers
// itself for them in an init function. The simplest ones are a [HeaderFilter],
// which looks at an RPC before it starts:
//
//	type config struct{ Name, Value string }
//
//	func init() {
//		httpfilter.Register(httpfilter.HeaderFilter[config]{
//			Types: []string{"type.googleapis.com/example.v1.AddHeader"},
//			Parse: httpfilter.ParseStruct[config],
//			Start: func(ctx context.Context, rpc *httpfilter.RPC, c config) (context.Context, error) {
//				return metadata.AppendToOutgoingContext(ctx, c.Name, c.Value), nil
//			},
//		})
//	}
//
// A filter that needs more implements [Filter] and [ClientFilter] itself, and,
// if a route may override its configuration, [OverrideParser].
//
// # What exists when
//
//   - One [Filter] for the whole process, from init on.
//   - One [ClientInstance] for each instance name of a channel. It stays across
//     updates of the configuration for as long as the name stands for the same
//     type of filter, and is the place for state: counters, token buckets,
//     caches. Its Close, if it has one, runs once, some time after the name was removed (or the
//     channel became idle or was closed) and the last RPC that went through it has ended.
//   - One [Interceptor] for each distinct pair of configuration and override,
//     made when a configuration is applied, never while an RPC waits.
//
// # What this package is not for
//
// It does not decide which filters run where: xdsresource decodes that, and
// configselector builds the chains and runs them. It does not route, and knows
// neither resources nor load balancing.
package httpfilter

import (
	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc"
	estats "google.golang.org/grpc/experimental/stats"
	"google.golang.org/protobuf/types/known/anypb"
)

// Config is a parsed, validated configuration of a filter, in a form that
// only the filter's own package understands. It is immutable.
type Config any

// Filter is a type of HTTP filter. Implementations are stateless and safe for
// concurrent use.
//
// A filter that clients can run implements [ClientFilter] too; one that does not is for servers,
// and known since a RouteConfiguration may be for both sides. One with override configurations
// implements [OverrideParser], one that calls a gRPC service [ServiceFilter], and one whose
// configurations have others in them [NestingFilter].
type Filter interface {
	// TypeURLs returns the type URLs of the configurations this filter is
	// registered under, top-level and override together.
	TypeURLs() []string
	// ParseConfig validates a top-level configuration
	// (HttpFilter.typed_config). An error NACKs the Listener. The message may
	// be a TypedStruct that stands for one of the TypeURLs; [UnmarshalConfig]
	// and [ParseStruct] take both. ParseConfig has to refuse a message that is
	// only meant as an override.
	ParseConfig(config *anypb.Any) (Config, error)
	// IsTerminal reports whether the filter has to be the last of its chain,
	// and may be only that.
	IsTerminal() bool
}

// OverrideParser is a Filter whose configuration a virtual host, a route or a
// cluster weight can override (typed_per_filter_config).
type OverrideParser interface {
	Filter
	// ParseOverride validates an override configuration. An error NACKs the
	// RouteConfiguration.
	ParseOverride(override *anypb.Any) (Config, error)
}

// ServiceFilter is a Filter whose configurations name gRPC services for it to call. Without WithServices, their
// services cannot be called, as in a program that decodes resources without a client.
type ServiceFilter interface {
	Filter
	// WithServices returns the Filter that parses configurations, and overrides if it is an OverrideParser, for a client. Nothing
	// else is asked of it.
	WithServices(Services) Filter
}

// Services says how to call a service, if the management server that sent the configuration may name it
// (gRFC A102, "Security Considerations"). Errors name fields of the argument.
type Services func(*corepb.GrpcService_GoogleGrpc) (Service, error)

// Service is a gRPC service that a filter may call.
type Service interface {
	// DialOptions returns the options to dial the service with, its credentials among them. release
	// has to be called once the connection is closed.
	DialOptions() (options []grpc.DialOption, release func(), err error)
	// Key is equal for services that one connection can serve.
	Key() string
}

// NestingFilter is a Filter whose configurations have those of further filters in them, as that of the composite filter
// has (gRFC A103). Its interceptors run these filters by [Next.Through].
type NestingFilter interface {
	OverrideParser
	// Nesting returns the filter as it parses one configuration or override, for which it is called. parse is for
	// the configurations inside.
	Nesting(parse NestedParser) OverrideParser
}

// NestedParser parses the configuration of a filter inside that of another one. It is an error if there is no such filter, if
// the filter is terminal, or if there are too many, or too many in one another. In an override, the filter may be one for
// servers only.
type NestedParser func(name string, config *anypb.Any) (Instance, error)

// ClientFilter is a Filter that clients can run. A terminal filter that is no
// ClientFilter stands for the router, which every chain ends in.
type ClientFilter interface {
	Filter
	// NewClientInstance makes the instance for one name in the filter chain of
	// one channel. It is called when a configuration is applied and must not
	// block.
	NewClientInstance(ClientInstanceInfo) ClientInstance
}

// ClientInstanceInfo identifies an instance.
type ClientInstanceInfo struct {
	// Name is the instance name, HttpFilter.name.
	Name string
	// Target is the target of the channel, "xds:///echo.example.com".
	Target string
	// Metrics records the metrics of the channel. nil: nothing does.
	Metrics estats.MetricsRecorder
}

// ClientInstance is a filter under one name on one channel. What it holds
// stays across updates of the configuration for as long as name and type of
// the filter stay.
//
// If it has a method Close(), that runs once, on a goroutine of its own, after no
// configuration uses the instance any more, the last RPC that went through one of its
// interceptors has ended, and the application has let go of that RPC's stream. The garbage
// collector notices that, which can take minutes, and does not before the process
// exits: Close is for what would be of no use any more, such as goroutines and
// connections, and nothing may be lost if it does not run.
type ClientInstance interface {
	// ClientInterceptor builds the interceptor for a configuration and the
	// override that applies to it, nil if none does (gRFC A39, "Filter Config
	// Overrides": the merged configuration is made when the configuration is
	// applied). It is called once for each distinct pair and must not block.
	// RPCs whose chain cannot be built fail with UNAVAILABLE and this error. A
	// nil Interceptor and a nil error leave the filter out of the chain.
	ClientInterceptor(config, override Config) (Interceptor, error)
}

// Instance is one entry of HttpConnectionManager.http_filters.
type Instance struct {
	// Name is the instance name, unique in the chain.
	Name   string
	Filter Filter
	Config Config
	// Disabled leaves the filter out of the chains of all routes but those
	// that override it (HttpFilter.disabled).
	Disabled bool
}
