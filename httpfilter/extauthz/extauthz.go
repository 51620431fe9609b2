// Package extauthz is the filter envoy.extensions.filters.http.ext_authz.v3 (gRFC A92), on the client: a gRPC service
// decides on each RPC before the RPC starts: the service allows it, and may change metadata and response headers, or ends it
// with a status and trailers.
//
// Which service a control plane may name is up to the bootstrap (gRFC A102): allowed_grpc_services, or any service if
// the management server is trusted. If the service does not answer, RPCs fail, unless failure_mode_allow is set.
package extauthz

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"

	filterpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_authz/v3"
	authpb "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/dynxds/dynxds/httpfilter"
	"github.com/dynxds/dynxds/httpfilter/internal/protofilter"
	"github.com/dynxds/dynxds/httpfilter/internal/sidechannel"
	"github.com/dynxds/dynxds/internal/boundlog"
	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/fraction"
	"github.com/dynxds/dynxds/internal/headeredit"
	"github.com/dynxds/dynxds/internal/httpstatus"
)

var logger = boundlog.Component("dynxds")

func init() { httpfilter.Register(newFilter(nil)) }

type filter struct{ protofilter.Filter }

// WithServices implements httpfilter.ServiceFilter.
func (filter) WithServices(s httpfilter.Services) httpfilter.Filter { return newFilter(s) }

// newFilter returns the filter with services, which are nil without a client.
func newFilter(s httpfilter.Services) filter {
	return filter{protofilter.New(
		func(pb *filterpb.ExtAuthz, found *faults.Faults) httpfilter.Config { return parse(pb, s, found) }, parseOverride,
		func(info httpfilter.ClientInstanceInfo) httpfilter.ClientInstance { return instance{info} },
	)}
}

// config is a valid ExtAuthz.
type config struct {
	service *sidechannel.Service
	// enabled is the share of RPCs that the service is asked about. The others are allowed, or, with denyOthers, fail
	// with the code failed.
	enabled    fraction.Fraction
	denyOthers bool
	// failed is the code of RPCs for which the service does not answer, unless allowFailed is set. With markFailed, RPCs that are
	// allowed for that reason get a header.
	failed                  codes.Code
	allowFailed, markFailed bool
	// forward chooses the headers that the service sees.
	forward sidechannel.Forward
	rules   sidechannel.Rules
}

func parse(pb *filterpb.ExtAuthz, services httpfilter.Services, found *faults.Faults) httpfilter.Config {
	if pb.GetDenyAtDisable() != nil && pb.GetDenyAtDisable().GetDefaultValue() == nil {
		found.Addf(faults.Field("deny_at_disable").Field("default_value"), "must be set")
	}
	return &config{
		service:     sidechannel.Parse(faults.Field("grpc_service"), pb.GetGrpcService(), services, found),
		enabled:     fraction.ReadRuntime(faults.Field("filter_enabled"), pb.GetFilterEnabled(), found),
		denyOthers:  pb.GetDenyAtDisable().GetDefaultValue().GetValue(),
		failed:      httpstatus.Code(cmp.Or(int(pb.GetStatusOnError().GetCode()), http.StatusForbidden)),
		allowFailed: pb.GetFailureModeAllow(),
		markFailed:  pb.GetFailureModeAllowHeaderAdd(),
		forward:     sidechannel.ParseForward(nil, pb.GetAllowedHeaders(), pb.GetDisallowedHeaders(), found),
		rules:       sidechannel.ParseRules(faults.Field("decoder_header_mutation_rules"), pb.GetDecoderHeaderMutationRules(), found),
	}
}

// Ends returns how many percent of RPCs the filter ends without asking the service, and with which code. Explanations of
// RPCs call it.
func (c *config) Ends(context.Context, *httpfilter.RPC) (percent float64, code codes.Code) {
	if asked := float64(c.enabled.Numerator) / float64(c.enabled.Denominator); c.denyOthers && asked < 1 {
		return 100 - 100*asked, c.failed
	}
	return 0, codes.OK
}

// Needs returns the target of the service without which RPCs fail, or "". Examinations of a channel call it.
func (c *config) Needs() string {
	if c.allowFailed || c.enabled.Numerator == 0 {
		return ""
	}
	return c.service.Target()
}

// parseOverride ignores the fields of the message (gRFC A92, "Override Configuration").
func parseOverride(pb *filterpb.ExtAuthzPerRoute, _ *faults.Faults) httpfilter.Config {
	if pb.GetOverride() != nil {
		logger.Infof("ext_authz filter: the fields of an override are ignored; disabled of FilterConfig disables the filter for a route")
	}
	return nil
}

type instance struct{ httpfilter.ClientInstanceInfo }

func (in instance) ClientInterceptor(c, _ httpfilter.Config) (httpfilter.Interceptor, error) {
	i := &interceptor{config: c.(*config), instance: in}
	if i.enabled.Numerator == 0 {
		return i, nil
	}
	var err error
	if i.channel, err = i.service.Open(); err != nil {
		return nil, fmt.Errorf("ext_authz: %w", err)
	}
	return i, nil
}

type interceptor struct {
	*config
	instance
	channel *sidechannel.Channel // nil: no RPC is asked about
}

// method is the service's.
const method = "/envoy.service.auth.v3.Authorization/Check"

func (i *interceptor) NewStream(ctx context.Context, rpc *httpfilter.RPC, next httpfilter.Next) (grpc.ClientStream, error) {
	if !i.enabled.Draw() {
		i.decided(ctx, rpc, disabled, "disabled", nil)
		if i.denyOthers {
			return nil, status.Error(i.failed, "ext_authz: the filter is disabled for this RPC, and deny_at_disable is set")
		}
		return next.NewStream(ctx, rpc)
	}
	answer := new(authpb.CheckResponse)
	err := i.channel.Invoke(ctx, method, i.request(ctx, rpc), answer)
	var edits mutations
	if err == nil {
		edits, err = i.mutations(answer)
	}
	switch {
	case err == nil && answer.GetStatus().GetCode() == int32(codes.OK):
		i.decided(ctx, rpc, allowed, "allowed", nil)
		return edits.start(ctx, rpc, next)
	case err == nil:
		end := denial(answer)
		i.decided(ctx, rpc, denied, "denied", end)
		return httpfilter.EndedStream(ctx, end, edits.trailer()), nil
	case sidechannel.Ended(ctx) != nil:
		return nil, sidechannel.Ended(ctx)
	case errors.Is(err, sidechannel.ErrDisallowed):
		i.decided(ctx, rpc, failed, "failed", err)
		return nil, status.Errorf(codes.Internal, "ext_authz: the service's answer: %v", err)
	case !i.allowFailed, answer.GetStatus().GetCode() != int32(codes.OK): // An invalid denial allows nothing.
		i.decided(ctx, rpc, failed, "failed", err)
		return nil, status.Errorf(i.failed, "ext_authz: the service has not decided: %v", err)
	}
	i.decided(ctx, rpc, failed, "failed_open", err)
	if i.markFailed {
		ctx = metadata.AppendToOutgoingContext(ctx, "x-envoy-auth-failure-mode-allowed", "true")
	}
	return next.NewStream(ctx, rpc)
}

// request is what the service is asked (gRFC A92, "Constructing the ext_authz Request"). On the client, there is neither source nor
// destination.
func (i *interceptor) request(ctx context.Context, rpc *httpfilter.RPC) *authpb.CheckRequest {
	md, _ := metadata.FromOutgoingContext(ctx)
	return &authpb.CheckRequest{Attributes: &authpb.AttributeContext{Request: &authpb.AttributeContext_Request{
		Time: timestamppb.Now(),
		Http: &authpb.AttributeContext_HttpRequest{
			Method:    "POST",
			Path:      rpc.Method,
			HeaderMap: sidechannel.HeaderMap(md, i.forward.Shows),
			Size:      -1,
			Protocol:  "HTTP/2",
		},
	}}}
}

// mutations are what the service wants changed: request and response of an RPC that is allowed, or the trailers of one that is denied.
type mutations struct{ request, response headeredit.Edits }

func (i *interceptor) mutations(answer *authpb.CheckResponse) (m mutations, err error) {
	if answer.GetStatus().GetCode() != int32(codes.OK) {
		m.response, err = i.rules.Edits(answer.GetDeniedResponse().GetHeaders(), nil)
		return m, err
	}
	ok := answer.GetOkResponse()
	if m.request, err = i.rules.Edits(ok.GetHeaders(), ok.GetHeadersToRemove()); err != nil {
		return m, err
	}
	m.response, err = i.rules.Edits(ok.GetResponseHeadersToAdd(), nil)
	return m, err
}

// start starts an RPC that is allowed.
func (m mutations) start(ctx context.Context, rpc *httpfilter.RPC, next httpfilter.Next) (grpc.ClientStream, error) {
	s, err := next.NewStream(headeredit.Outgoing(ctx, m.request), rpc)
	if err != nil || len(m.response) == 0 {
		return s, err
	}
	return httpfilter.EditResponse(s, m.response.Apply, nil), nil
}

func (m mutations) trailer() metadata.MD {
	trailer := metadata.MD{}
	m.response.Apply(trailer)
	return trailer
}

// denial is the status of an RPC that the service denies. Its own status is only in the text.
func denial(answer *authpb.CheckResponse) error {
	code := cmp.Or(int(answer.GetDeniedResponse().GetStatus().GetCode()), http.StatusForbidden)
	return status.Errorf(httpstatus.Code(code), "ext_authz: the service denies it: %s: %s",
		codes.Code(answer.GetStatus().GetCode()), bounds.Text(answer.GetStatus().GetMessage(), bounds.ErrorText))
}
