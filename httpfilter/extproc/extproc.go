// Package extproc is the filter envoy.extensions.filters.http.ext_proc.v3 (gRFC A93), on the client: a gRPC service, the
// processor, sees the headers, messages and trailers of each RPC as they pass, and may change them or end the RPC.
//
// Which service a control plane may name is up to the bootstrap, as with ext_authz (gRFC A102).
package extproc

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	filterpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/httpfilter"
	"github.com/dynxds/dynxds/httpfilter/internal/attributes"
	"github.com/dynxds/dynxds/httpfilter/internal/protofilter"
	"github.com/dynxds/dynxds/httpfilter/internal/sidechannel"
	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/grpcbridge"
)

func init() { httpfilter.Register(newFilter(nil)) }

// deferredClose is the default of deferred_close_timeout, and maxDeferred the limit, as the processor holds a stream of each RPC meanwhile.
const (
	deferredClose = 5 * time.Second
	maxDeferred   = time.Hour
)

type filter struct{ protofilter.Filter }

// WithServices implements httpfilter.ServiceFilter.
func (filter) WithServices(s httpfilter.Services) httpfilter.Filter { return newFilter(s) }

// newFilter returns the filter with services, which are nil without a client.
func newFilter(s httpfilter.Services) filter {
	return filter{protofilter.New(
		func(pb *filterpb.ExternalProcessor, found *faults.Faults) httpfilter.Config {
			return parse(pb, s, found)
		},
		func(pb *filterpb.ExtProcPerRoute, found *faults.Faults) httpfilter.Config {
			return parseOverride(pb, s, found)
		},
		func(info httpfilter.ClientInstanceInfo) httpfilter.ClientInstance { return instance{info} },
	)}
}

// config is a valid ExternalProcessor.
type config struct {
	service *sidechannel.Service
	sends   mode
	// attributes are the names of those that go with the first event of a direction.
	attributes [directions][]string
	// allowFailed lets RPCs go on without the processor if it fails before it has been sent messages.
	allowFailed bool
	// noImmediate makes an immediate response a failure of the processor.
	noImmediate bool
	// observe shows RPCs to the processor without waiting for answers.
	observe bool
	// deferred is how long the processor has after the RPC to read what it was sent.
	deferred time.Duration
	forward  sidechannel.Forward
	rules    sidechannel.Rules
}

// mode is what of an RPC the processor is sent.
type mode struct {
	events [kinds]bool
	bodies [directions]bool
}

// override is a valid ExtProcPerRoute, as a list of changes of the config.
type override []func(*config)

func parse(pb *filterpb.ExternalProcessor, services httpfilter.Services, found *faults.Faults) httpfilter.Config {
	c := &config{
		service:     sidechannel.Parse(faults.Field("grpc_service"), pb.GetGrpcService(), services, found),
		attributes:  [directions][]string{known(pb.GetRequestAttributes()), known(pb.GetResponseAttributes())},
		allowFailed: pb.GetFailureModeAllow(),
		noImmediate: pb.GetDisableImmediateResponse(),
		observe:     pb.GetObservabilityMode(),
		deferred:    deferredClose,
		forward: sidechannel.ParseForward(faults.Field("forward_rules"),
			pb.GetForwardRules().GetAllowedHeaders(), pb.GetForwardRules().GetDisallowedHeaders(), found),
		rules: sidechannel.ParseRules(faults.Field("mutation_rules"), pb.GetMutationRules(), found),
	}
	if pb.GetProcessingMode() == nil {
		found.Addf(faults.Field("processing_mode"), "must be set")
	} else {
		c.sends = parseMode(faults.Field("processing_mode"), pb.GetProcessingMode(), found)
	}
	if d := pb.GetDeferredCloseTimeout(); d != nil {
		c.deferred = d.AsDuration()
		if d.CheckValid() != nil || c.deferred <= 0 || c.deferred > maxDeferred {
			found.Addf(faults.Field("deferred_close_timeout"), "must be a valid duration above 0, of %v at most", maxDeferred)
		}
	}
	return c
}

// known returns the attributes among names, each once.
func known(names []string) []string {
	return slices.DeleteFunc(slices.Clone(attributes.Names()), func(name string) bool { return !slices.Contains(names, name) })
}

// parseMode reads a ProcessingMode. Without a mode, headers are sent, and trailers are not.
func parseMode(at *faults.Path, pb *filterpb.ProcessingMode, found *faults.Faults) (e mode) {
	headers := func(field string, mode filterpb.ProcessingMode_HeaderSendMode, byDefault bool) bool {
		switch mode {
		case filterpb.ProcessingMode_DEFAULT:
			return byDefault
		case filterpb.ProcessingMode_SEND, filterpb.ProcessingMode_SKIP:
		default:
			found.Addf(at.Field(field), "%v is not known", mode)
		}
		return mode == filterpb.ProcessingMode_SEND
	}
	messages := func(field string, mode filterpb.ProcessingMode_BodySendMode) bool {
		if mode != filterpb.ProcessingMode_NONE && mode != filterpb.ProcessingMode_GRPC {
			found.Addf(at.Field(field), "must be NONE or GRPC, is %v", mode)
		}
		return mode == filterpb.ProcessingMode_GRPC
	}
	e.events[requestHeaders] = headers("request_header_mode", pb.GetRequestHeaderMode(), true)
	e.events[responseHeaders] = headers("response_header_mode", pb.GetResponseHeaderMode(), true)
	e.events[responseTrailers] = headers("response_trailer_mode", pb.GetResponseTrailerMode(), false)
	e.bodies[requests] = messages("request_body_mode", pb.GetRequestBodyMode())
	e.bodies[responses] = messages("response_body_mode", pb.GetResponseBodyMode())
	if e.bodies[responses] && !e.events[responseTrailers] {
		found.Addf(at.Field("response_trailer_mode"), "must be SEND, as response_body_mode is GRPC")
	}
	return e
}

// Needs returns the target of the processor without which RPCs fail, or "". Examinations of a channel call it.
func (c *config) Needs() string {
	if c.allowFailed || c.sends == (mode{}) {
		return ""
	}
	return c.service.Target()
}

// parseOverride ignores disabled of the message: that of FilterConfig disables the filter (gRFC A93, "Override Configuration").
func parseOverride(pb *filterpb.ExtProcPerRoute, services httpfilter.Services, found *faults.Faults) httpfilter.Config {
	var o override
	at, overrides := faults.Field("overrides"), pb.GetOverrides()
	if service := overrides.GetGrpcService(); service != nil {
		service := sidechannel.Parse(at.Field("grpc_service"), service, services, found)
		o = append(o, func(c *config) { c.service = service })
	}
	if mode := overrides.GetProcessingMode(); mode != nil {
		sends := parseMode(at.Field("processing_mode"), mode, found)
		o = append(o, func(c *config) { c.sends = sends })
	}
	if allow := overrides.GetFailureModeAllow(); allow != nil {
		o = append(o, func(c *config) { c.allowFailed = allow.GetValue() })
	}
	for d, names := range [directions][]string{overrides.GetRequestAttributes(), overrides.GetResponseAttributes()} {
		if len(names) > 0 {
			o = append(o, func(c *config) { c.attributes[d] = known(names) })
		}
	}
	return &o
}

type instance struct{ httpfilter.ClientInstanceInfo }

func (in instance) ClientInterceptor(c, o httpfilter.Config) (httpfilter.Interceptor, error) {
	merged := *c.(*config)
	if o, ok := o.(*override); ok {
		for _, change := range *o {
			change(&merged)
		}
	}
	if merged.sends == (mode{}) {
		return nil, nil
	}
	channel, err := merged.service.Open()
	if err != nil {
		return nil, fmt.Errorf("ext_proc: %w", err)
	}
	return &interceptor{config: merged, instance: in, channel: channel}, nil
}

type interceptor struct {
	config
	instance
	channel *sidechannel.Channel
}

func (i *interceptor) NewStream(ctx context.Context, rpc *httpfilter.RPC, next httpfilter.Next) (grpc.ClientStream, error) {
	if i.sends.bodies != [directions]bool{} && grpcbridge.RawCodecOf(rpc.Options).CodecV2 == nil {
		return nil, status.Error(codes.Internal, "ext_proc: no codec is registered for the content-subtype of the RPC")
	}
	s := newStream(ctx, i, rpc)
	md, _ := metadata.FromOutgoingContext(ctx)
	s.ask(requestHeaders, md, false)
	if s.sends.bodies[requests] {
		// The processor may want to see messages before it answers the headers.
		go s.toBackend(next)
		return s, nil
	}
	s.start(next)
	switch {
	case s.backend != nil:
		return s, nil
	case s.endErr == io.EOF:
		return httpfilter.EndedStream(ctx, nil, nil), nil
	}
	return nil, s.endErr
}
