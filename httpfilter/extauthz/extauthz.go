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
	"time"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	filterpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_authz/v3"
	authpb "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	matcherpb "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/dynxds/dynxds/httpfilter"
	"github.com/dynxds/dynxds/httpfilter/internal/sidechannel"
	"github.com/dynxds/dynxds/internal/boundlog"
	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/internal/fraction"
	"github.com/dynxds/dynxds/internal/headeredit"
	"github.com/dynxds/dynxds/internal/httpstatus"
	"github.com/dynxds/dynxds/internal/matching"
)

// The types of the filter's configurations.
const (
	typeURL         = "type.googleapis.com/envoy.extensions.filters.http.ext_authz.v3.ExtAuthz"
	overrideTypeURL = "type.googleapis.com/envoy.extensions.filters.http.ext_authz.v3.ExtAuthzPerRoute"
)

var logger = boundlog.Component("dynxds")

func init() { httpfilter.Register(filter{}) }

type filter struct{}

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
	// shown and hidden choose the headers that the service sees. Without shown it sees all that are not hidden.
	shown, hidden []matching.String
	rules         sidechannel.Rules
}

func (filter) TypeURLs() []string { return []string{typeURL, overrideTypeURL} }

func (filter) IsTerminal() bool { return false }

func (f filter) ParseConfig(a *anypb.Any) (httpfilter.Config, error) {
	return f.ParseConfigWith(a, nil)
}

func (filter) ParseConfigWith(a *anypb.Any, services httpfilter.Services) (httpfilter.Config, error) {
	pb := new(filterpb.ExtAuthz)
	if err := httpfilter.UnmarshalConfig(a, pb); err != nil {
		return nil, err
	}
	c := &config{
		enabled:     fraction.Fraction{Numerator: 1, Denominator: 1},
		denyOthers:  pb.GetDenyAtDisable().GetDefaultValue().GetValue(),
		failed:      httpstatus.Code(cmp.Or(int(pb.GetStatusOnError().GetCode()), http.StatusForbidden)),
		allowFailed: pb.GetFailureModeAllow(),
		markFailed:  pb.GetFailureModeAllowHeaderAdd(),
	}
	var errs [6]error
	if pb.GetGrpcService() == nil {
		errs[0] = errors.New("grpc_service: must be set, as http_service is not supported")
	} else if c.service, errs[0] = sidechannel.Parse(pb.GetGrpcService(), services); errs[0] != nil {
		errs[0] = fmt.Errorf("grpc_service.%w", errs[0])
	}
	if pb.GetFilterEnabled() != nil {
		c.enabled, errs[1] = share(pb.GetFilterEnabled())
	}
	if pb.GetDenyAtDisable() != nil && pb.GetDenyAtDisable().GetDefaultValue() == nil {
		errs[2] = errors.New("deny_at_disable.default_value: must be set")
	}
	c.shown, errs[3] = names("allowed_headers", pb.GetAllowedHeaders())
	c.hidden, errs[4] = names("disallowed_headers", pb.GetDisallowedHeaders())
	if c.rules, errs[5] = sidechannel.ParseRules(pb.GetDecoderHeaderMutationRules()); errs[5] != nil {
		errs[5] = fmt.Errorf("decoder_header_mutation_rules.%w", errs[5])
	}
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	return c, nil
}

func share(pb *corepb.RuntimeFractionalPercent) (f fraction.Fraction, err error) {
	if pb.GetDefaultValue() == nil {
		return f, errors.New("filter_enabled.default_value: must be set")
	}
	if f, err = fraction.Parse(pb.GetDefaultValue()); err != nil {
		return f, fmt.Errorf("filter_enabled.default_value.%w", err)
	}
	return f, nil
}

func names(field string, pb *matcherpb.ListStringMatcher) (list []matching.String, err error) {
	if n := len(pb.GetPatterns()); n > bounds.HeaderEdits {
		return nil, fmt.Errorf("%s.patterns has %d entries, more than the %d that this client takes, as each RPC goes through them", field, n, bounds.HeaderEdits)
	}
	for i, pattern := range pb.GetPatterns() {
		m, err := headeredit.NameMatcher(pattern)
		if err != nil {
			return nil, fmt.Errorf("%s.patterns[%d]%w", field, i, err)
		}
		list = append(list, m)
	}
	return list, nil
}

// ParseOverride implements httpfilter.OverrideParser. The fields of the message are ignored (gRFC A92, "Override
// Configuration").
func (filter) ParseOverride(a *anypb.Any) (httpfilter.Config, error) {
	pb := new(filterpb.ExtAuthzPerRoute)
	err := httpfilter.UnmarshalConfig(a, pb)
	if err == nil && pb.GetOverride() != nil {
		logger.Infof("ext_authz filter: the fields of an override are ignored; disabled of FilterConfig disables the filter for a route")
	}
	return nil, err
}

func (filter) NewClientInstance(info httpfilter.ClientInstanceInfo) httpfilter.ClientInstance {
	return instance{counters{info.Metrics, info.Target}}
}

type instance struct{ counters }

func (in instance) ClientInterceptor(c, _ httpfilter.Config) (httpfilter.Interceptor, error) {
	i := &interceptor{config: c.(*config), counters: in.counters}
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
	counters
	channel *sidechannel.Channel // nil: no RPC is asked about
}

// method is the service's.
const method = "/envoy.service.auth.v3.Authorization/Check"

func (i *interceptor) NewStream(ctx context.Context, rpc *httpfilter.RPC, next httpfilter.Next) (grpc.ClientStream, error) {
	if !i.enabled.Draw() {
		i.count(disabled, rpc)
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
		i.count(allowed, rpc)
		return edits.start(ctx, rpc, next)
	case err == nil:
		i.count(denied, rpc)
		return httpfilter.EndedStream(ctx, denial(answer), edits.trailer()), nil
	case over(ctx) != nil:
		return nil, status.FromContextError(over(ctx)).Err()
	}
	i.count(failed, rpc)
	switch {
	case errors.Is(err, sidechannel.ErrDisallowed):
		return nil, status.Errorf(codes.Internal, "ext_authz: the service's answer: %v", err)
	case !i.allowFailed:
		return nil, status.Errorf(i.failed, "ext_authz: the service has not decided: %v", err)
	case i.markFailed:
		ctx = metadata.AppendToOutgoingContext(ctx, "x-envoy-auth-failure-mode-allowed", "true")
	}
	return next.NewStream(ctx, rpc)
}

// over returns why the RPC has ended, nil if it has not. The service may notice a deadline before the context does.
func over(ctx context.Context) error {
	if deadline, ok := ctx.Deadline(); ok && !time.Now().Before(deadline) {
		return context.DeadlineExceeded
	}
	return ctx.Err()
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
			HeaderMap: sidechannel.HeaderMap(md, i.shows),
			Size:      -1,
			Protocol:  "HTTP/2",
		},
	}}}
}

// shows reports whether the service sees the header.
func (i *interceptor) shows(name string) bool {
	return !matches(i.hidden, name) && (len(i.shown) == 0 || matches(i.shown, name))
}

func matches(list []matching.String, name string) bool {
	for i := range list {
		if list[i].Matches(name) {
			return true
		}
	}
	return false
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
		codes.Code(answer.GetStatus().GetCode()), answer.GetStatus().GetMessage())
}
