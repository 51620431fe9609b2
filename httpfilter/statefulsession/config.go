package statefulsession

import (
	"errors"
	"fmt"
	"strings"
	"time"

	sessionpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/stateful_session/v3"
	cookiepb "github.com/envoyproxy/go-control-plane/envoy/extensions/http/stateful_session/cookie/v3"
	headerpb "github.com/envoyproxy/go-control-plane/envoy/extensions/http/stateful_session/header/v3"
	httppb "github.com/envoyproxy/go-control-plane/envoy/type/http/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/httpfilter"
	"github.com/dynxds/dynxds/internal/headeredit"
)

// The types of the filter's configurations.
const (
	typeURL         = "type.googleapis.com/envoy.extensions.filters.http.stateful_session.v3.StatefulSession"
	overrideTypeURL = "type.googleapis.com/envoy.extensions.filters.http.stateful_session.v3.StatefulSessionPerRoute"
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

// ParseConfig implements httpfilter.Filter.
func (filter) ParseConfig(a *anypb.Any) (httpfilter.Config, error) {
	pb := new(sessionpb.StatefulSession)
	if err := httpfilter.UnmarshalConfig(a, pb); err != nil {
		return nil, err
	}
	return parse("", pb)
}

// ParseOverride implements httpfilter.OverrideParser.
func (filter) ParseOverride(a *anypb.Any) (httpfilter.Config, error) {
	pb := new(sessionpb.StatefulSessionPerRoute)
	if err := httpfilter.UnmarshalConfig(a, pb); err != nil {
		return nil, err
	}
	switch o := pb.GetOverride().(type) {
	case *sessionpb.StatefulSessionPerRoute_Disabled:
		if !o.Disabled {
			return nil, errors.New("disabled: must be true if it is set")
		}
		return &config{}, nil
	case *sessionpb.StatefulSessionPerRoute_StatefulSession:
		return parse("stateful_session.", o.StatefulSession)
	default:
		return nil, errors.New("override must be disabled or stateful_session, is not set")
	}
}

// parse reads a StatefulSession at the given place of the configuration. Like
// in Envoy, one without session state is one that does nothing.
func parse(at string, pb *sessionpb.StatefulSession) (httpfilter.Config, error) {
	state := pb.GetSessionState()
	if state == nil {
		return &config{}, nil
	}
	at += "session_state.typed_config"
	if state.GetTypedConfig().GetTypeUrl() == headerTypeURL {
		return parseHeader(at, state.GetTypedConfig())
	}
	cookie := new(cookiepb.CookieBasedSessionState)
	if err := httpfilter.UnmarshalConfig(state.GetTypedConfig(), cookie); err != nil {
		return nil, fmt.Errorf("%s: must be a CookieBasedSessionState or a HeaderBasedSessionState: %w", at, err)
	}
	return parseCookie(at+".cookie", cookie.GetCookie())
}

// parseHeader takes names that an application can send as metadata, and get.
func parseHeader(at string, a *anypb.Any) (httpfilter.Config, error) {
	pb := new(headerpb.HeaderBasedSessionState)
	if err := httpfilter.UnmarshalConfig(a, pb); err != nil {
		return nil, fmt.Errorf("%s: %w", at, err)
	}
	name, err := headeredit.Name(headeredit.Request, pb.GetName())
	if err == nil {
		_, err = headeredit.Name(headeredit.Response, name)
	}
	if err != nil {
		return nil, fmt.Errorf("%s.name: %w", at, err)
	}
	return &config{header: name}, nil
}

func parseCookie(at string, pb *httppb.Cookie) (httpfilter.Config, error) {
	if pb == nil {
		return nil, fmt.Errorf("%s: must be set", at)
	}
	c := &config{name: pb.GetName(), path: pb.GetPath()}
	var faults []error
	switch {
	case c.name == "":
		faults = append(faults, fmt.Errorf("%s.name: must not be empty", at))
	case !isToken(c.name):
		faults = append(faults, fmt.Errorf("%s.name: %.50q cannot be the name of a cookie (RFC 6265)", at, c.name))
	}
	if strings.ContainsFunc(c.path, func(r rune) bool { return r == ';' || r < ' ' || r > '~' }) {
		faults = append(faults, fmt.Errorf("%s.path: %.50q cannot be the path of a cookie (RFC 6265)", at, c.path))
	}
	if c.path == "" {
		c.path = "/"
	}
	if ttl := pb.GetTtl(); ttl != nil {
		if c.ttl = ttl.AsDuration(); ttl.CheckValid() != nil || c.ttl < 0 {
			faults = append(faults, fmt.Errorf("%s.ttl: must be a valid duration of at least 0, has seconds: %d, nanos: %d", at, ttl.GetSeconds(), ttl.GetNanos()))
		}
	}
	if n := len(pb.GetAttributes()); n > 0 {
		logger.Infof("stateful session filter: %s: %d attributes are ignored", at, n)
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	return c, nil
}

// isToken reports whether s is a token in the sense of RFC 2616, which the name
// of a cookie has to be.
func isToken(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool {
		return r <= ' ' || r > '~' || strings.ContainsRune(`()<>@,;:\"/[]?={}`, r)
	})
}
