package statefulsession

import (
	"cmp"
	"net/http"
	"time"

	sessionpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/stateful_session/v3"
	cookiepb "github.com/envoyproxy/go-control-plane/envoy/extensions/http/stateful_session/cookie/v3"
	headerpb "github.com/envoyproxy/go-control-plane/envoy/extensions/http/stateful_session/header/v3"
	httppb "github.com/envoyproxy/go-control-plane/envoy/type/http/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/httpfilter"
	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/headeredit"
)

// headerTypeURL is the type of sessions by a header (Envoy). Those by a cookie are gRFC A55's.
const headerTypeURL = "type.googleapis.com/envoy.extensions.http.stateful_session.header.v3.HeaderBasedSessionState"

// config is a configuration of either kind. Without sessions it is the zero config.
type config struct {
	// header has the session, in lower case. If it is empty, a cookie has.
	header string
	// name, path and ttl are those of the cookie.
	name, path string
	ttl        time.Duration
}

func parseConfig(pb *sessionpb.StatefulSession, found *faults.Faults) httpfilter.Config {
	return parse(nil, pb, found)
}

func parseOverride(pb *sessionpb.StatefulSessionPerRoute, found *faults.Faults) httpfilter.Config {
	switch o := pb.GetOverride().(type) {
	case *sessionpb.StatefulSessionPerRoute_Disabled:
		if !o.Disabled {
			found.Addf(faults.Field("disabled"), "must be true if it is set")
		}
	case *sessionpb.StatefulSessionPerRoute_StatefulSession:
		return parse(faults.Field("stateful_session"), o.StatefulSession, found)
	default:
		found.Addf(nil, "override must be disabled or stateful_session, is not set")
	}
	return &config{}
}

// parse reads a StatefulSession at the given place of the configuration. Like
// in Envoy, one without session state is one that does nothing.
func parse(at *faults.Path, pb *sessionpb.StatefulSession, found *faults.Faults) httpfilter.Config {
	c, state := new(config), pb.GetSessionState()
	if state == nil {
		return c
	}
	at = at.Field("session_state").Field("typed_config")
	if state.GetTypedConfig().GetTypeUrl() == headerTypeURL {
		c.parseHeader(at, state.GetTypedConfig(), found)
		return c
	}
	cookie := new(cookiepb.CookieBasedSessionState)
	if err := httpfilter.UnmarshalConfig(state.GetTypedConfig(), cookie); err != nil {
		found.Addf(at, "must be a CookieBasedSessionState or a HeaderBasedSessionState: %v", err)
		return c
	}
	c.parseCookie(at.Field("cookie"), cookie.GetCookie(), found)
	return c
}

// parseHeader takes names that an application can send as metadata, and get.
func (c *config) parseHeader(at *faults.Path, a *anypb.Any, found *faults.Faults) {
	pb := new(headerpb.HeaderBasedSessionState)
	if err := httpfilter.UnmarshalConfig(a, pb); err != nil {
		found.Addf(at, "%v", err)
		return
	}
	name, err := headeredit.Name(headeredit.Request, pb.GetName())
	if err == nil {
		_, err = headeredit.Name(headeredit.Response, name)
	}
	if err != nil {
		found.Addf(at.Field("name"), "%v", err)
	}
	c.header = name
}

func (c *config) parseCookie(at *faults.Path, pb *httppb.Cookie, found *faults.Faults) {
	if pb == nil {
		found.Addf(at, "must be set")
		return
	}
	c.name, c.path = pb.GetName(), pb.GetPath()
	if (&http.Cookie{Name: c.name}).Valid() != nil {
		found.Addf(at.Field("name"), "%.50q cannot be the name of a cookie (RFC 6265)", c.name)
	}
	if (&http.Cookie{Name: "any", Path: c.path}).Valid() != nil {
		found.Addf(at.Field("path"), "%.50q cannot be the path of a cookie (RFC 6265)", c.path)
	}
	c.path = cmp.Or(c.path, "/")
	if ttl := pb.GetTtl(); ttl != nil {
		if c.ttl = ttl.AsDuration(); ttl.CheckValid() != nil || c.ttl < 0 {
			found.Addf(at.Field("ttl"), "must be a valid duration of at least 0, has seconds: %d, nanos: %d", ttl.GetSeconds(), ttl.GetNanos())
		}
	}
	if n := len(pb.GetAttributes()); n > 0 {
		logger.Infof("stateful session filter: %s: %d attributes are ignored", at, n)
	}
}
