package meshroute

import (
	"slices"
	"strings"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	sessionpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/stateful_session/v3"
	hcmpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	cookiepb "github.com/envoyproxy/go-control-plane/envoy/extensions/http/stateful_session/cookie/v3"
	headerpb "github.com/envoyproxy/go-control-plane/envoy/extensions/http/stateful_session/header/v3"
	httppb "github.com/envoyproxy/go-control-plane/envoy/type/http/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/dynxds/dynxds/mesh/internal/meshpolicy"
)

// This file has the timeouts, retries and sessions of rules, which are in place of those of the service.

// setLimits sets the timeouts and retries of a rule.
func setLimits(to *routepb.RouteAction, r *meshpolicy.Rule) {
	if r.Retry != nil {
		to.RetryPolicy = retryPolicy(r.Retry, to.GetRetryPolicy())
	}
	if r.Timeouts == nil {
		return
	}
	if total := r.Timeouts.Request; total != nil {
		// 0 is no bound (gRFC A31).
		to.MaxStreamDuration = &routepb.RouteAction_MaxStreamDuration{MaxStreamDuration: durationpb.New(*total)}
	}
	attempt := r.Timeouts.BackendRequest
	if attempt == nil || *attempt == 0 && to.RetryPolicy == nil {
		return
	}
	if to.RetryPolicy == nil {
		to.RetryPolicy = &routepb.RetryPolicy{} // retries nothing
	}
	if to.RetryPolicy.PerTryTimeout = durationpb.New(*attempt); *attempt == 0 {
		to.RetryPolicy.PerTryTimeout = nil
	}
}

// retryPolicy returns the policy of a rule. It has the timeouts of attempts of the service's.
func retryPolicy(r *meshpolicy.Retry, service *routepb.RetryPolicy) *routepb.RetryPolicy {
	var on []string
	for _, code := range r.Codes {
		if status := meshpolicy.RetryStatuses[code]; status != "" && !slices.Contains(on, status) {
			on = append(on, status)
		}
	}
	// Connection errors and timeouts of attempts are always retried (HTTPRouteRetry). Other gRPC clients
	// know statuses only (gRFC A44).
	p := &routepb.RetryPolicy{
		RetryOn:       strings.Join(append(on, "connect-failure", "reset"), ","),
		PerTryTimeout: service.GetPerTryTimeout(), PerTryIdleTimeout: service.GetPerTryIdleTimeout(),
	}
	if r.Attempts > 0 {
		p.NumRetries = wrapperspb.UInt32(r.Attempts)
	}
	if r.Backoff > 0 {
		p.RetryBackOff = &routepb.RetryPolicy_RetryBackOff{BaseInterval: durationpb.New(r.Backoff)}
	}
	return p
}

// sessionFilter is the type, and the name, of the filter for sessions (gRFC A55), which clients may do without.
const sessionFilter = "envoy.extensions.filters.http.stateful_session.v3.StatefulSession"

// ownSessions returns the filter for sessions that the service itself has, or nil.
func (s *Service) ownSessions() *hcmpb.HttpFilter {
	for _, f := range s.Filters {
		if f.GetTypedConfig().MessageName() == sessionFilter {
			return f
		}
	}
	return nil
}

// sessionsName returns the name of the filter for sessions.
func (s *Service) sessionsName() string {
	if filter := s.ownSessions(); filter != nil {
		return filter.GetName()
	}
	return sessionFilter
}

// setSession overrides the filter for sessions. nil leaves it as it is.
func (t routeTable) setSession(to *routepb.Route, s *meshpolicy.Session) {
	if s == nil {
		return
	}
	var state proto.Message = &headerpb.HeaderBasedSessionState{Name: s.Header}
	if s.Header == "" {
		cookie := &httppb.Cookie{Name: s.Cookie, Path: s.Path}
		if s.TTL > 0 {
			cookie.Ttl = durationpb.New(s.TTL)
		}
		state = &cookiepb.CookieBasedSessionState{Cookie: cookie}
	}
	override := &sessionpb.StatefulSessionPerRoute{Override: &sessionpb.StatefulSessionPerRoute_StatefulSession{StatefulSession: &sessionpb.StatefulSession{
		SessionState: &corepb.TypedExtensionConfig{Name: string(state.ProtoReflect().Descriptor().FullName()), TypedConfig: mustPack(state)},
	}}}
	to.TypedPerFilterConfig = map[string]*anypb.Any{t.own.service.sessionsName(): mustPack(&routepb.FilterConfig{Config: mustPack(override), IsOptional: true})}
}

// mustPack packs a message whose text is that of a document, which is UTF-8.
func mustPack(m proto.Message) *anypb.Any {
	packed, err := pack(m)
	if err != nil {
		panic(err)
	}
	return packed
}
