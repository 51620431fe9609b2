package meshpolicy

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/dynxds/dynxds/internal/headeredit"
	"github.com/dynxds/dynxds/mesh/internal/document"
)

// FieldNames are the fields as they are written in routes.
var FieldNames = [NumFields]string{"filters", "backendRefs", "timeouts", "retry", "sessionPersistence"}

// Timeouts bound RPCs. nil means unspecified, 0 without a bound.
type Timeouts struct {
	// Request is for an RPC as a whole, BackendRequest for each of its attempts.
	Request, BackendRequest *time.Duration
}

// String returns the timeouts on one line.
func (t *Timeouts) String() string {
	var parts []string
	if t.Request != nil {
		parts = append(parts, "request "+t.Request.String())
	}
	if t.BackendRequest != nil {
		parts = append(parts, "backendRequest "+t.BackendRequest.String())
	}
	return strings.Join(parts, ", ")
}

// Retry is which failed attempts are retried. Those that no server has answered always are.
type Retry struct {
	// Codes are HTTP statuses.
	Codes []int
	// Attempts and Backoff are 0 if they are not specified.
	Attempts uint32
	Backoff  time.Duration
}

// String returns the policy on one line.
func (r *Retry) String() string {
	text := fmt.Sprintf("on %v", r.Codes)
	if r.Attempts > 0 {
		text += fmt.Sprintf(", attempts %d", r.Attempts)
	}
	if r.Backoff > 0 {
		text += fmt.Sprintf(", backoff %v", r.Backoff)
	}
	return text
}

// Session keeps the RPCs of a session with one endpoint: that of the header, or else of the cookie.
type Session struct {
	Header, Cookie, Path string
	// TTL is that of the cookie, 0 for none.
	TTL time.Duration
}

// String returns what identifies sessions.
func (s *Session) String() string {
	if s.Header != "" {
		return "header " + s.Header
	}
	return "cookie " + s.Cookie
}

// gatewayDuration is a duration of GEP-2257.
var gatewayDuration = regexp.MustCompile(`^([0-9]{1,5}(h|m|s|ms)){1,4}$`)

// readDuration reads a duration, nil if it is absent.
func readDuration(v document.Value) *time.Duration {
	if !v.Present() {
		return nil
	}
	d, err := time.ParseDuration(v.Text())
	if v.IsText() && (err != nil || !gatewayDuration.MatchString(v.Text())) {
		v.Fault("write it like 1m30s or 500ms", "%q is no duration", v.Text())
	}
	return &d
}

// readTimeouts reads HTTPRouteTimeouts.
func readTimeouts(v document.Value) *Timeouts {
	o := v.Object("request", "backendRequest")
	t := &Timeouts{readDuration(o.Field("request")), readDuration(o.Field("backendRequest"))}
	if t.Request != nil && t.BackendRequest != nil && *t.Request > 0 && *t.BackendRequest > *t.Request {
		o.Field("backendRequest").Fault("", "an attempt, of %v, cannot be longer than the request as a whole, of %v", *t.BackendRequest, *t.Request)
	}
	return t
}

// readRetry reads an HTTPRouteRetry. gRPC retries at most 4 times (gRFC A6).
func (r *reader) readRetry(v document.Value) *Retry {
	o := v.Object("codes", "attempts", "backoff")
	retry := &Retry{}
	for _, item := range o.Field("codes").Items() {
		code := int(item.Uint(400, 599))
		retry.Codes = append(retry.Codes, code)
		if _, ok := RetryStatuses[code]; !ok {
			r.note(item, fmt.Sprintf("no status that gRPC retries corresponds to the HTTP status %d", code))
		}
	}
	attempts := o.Field("attempts")
	if retry.Attempts = uint32(attempts.Uint(1, 1<<31-1)); retry.Attempts > 4 {
		r.note(attempts, "gRPC retries at most 4 times (gRFC A6)")
	}
	if d := readDuration(o.Field("backoff")); d != nil {
		retry.Backoff = *d
	}
	return retry
}

// RetryStatuses are the statuses of gRPC that HTTP statuses of retries stand for.
var RetryStatuses = map[int]string{
	429: "resource-exhausted", 499: "cancelled", 500: "internal", 502: "unavailable", 503: "unavailable", 504: "deadline-exceeded",
}

// readSession reads a SessionPersistence. Earlier versions of the API have cookieConfig and sessionName.
func (r *reader) readSession(v document.Value, unique string) *Session {
	o := v.Object("type", "sessionName", "absoluteTimeout", "idleTimeout", "cookie", "cookieConfig", "header")
	absolute, idle := o.Field("absoluteTimeout"), o.Field("idleTimeout")
	timeout := readDuration(absolute)
	if idle.Present() {
		r.note(idle, "idleTimeout has no effect")
	}
	if o.Field("type").OneOf("Cookie", "Header") == "Header" {
		name := cmp.Or(o.Field("header").Object("name").Field("name"), o.Field("sessionName"))
		if !name.Present() {
			o.Fault("add header: {name: …}", "the header with the session has no name")
		}
		if absolute.Present() {
			r.note(absolute, "absoluteTimeout has no effect on sessions by a header")
		}
		return &Session{Path: "/", Header: ReadSessionHeader(name)}
	}
	c := cmp.Or(o.Field("cookie"), o.Field("cookieConfig")).Object("name", "path", "lifetimeType")
	s := &Session{Path: "/", Cookie: unique}
	if name := cmp.Or(c.Field("name"), o.Field("sessionName")); name.Present() {
		s.Cookie = ReadCookieName(name)
	}
	if path := c.Field("path"); path.Present() {
		s.Path = ReadCookiePath(path)
	}
	permanent := c.Field("lifetimeType").OneOf("Permanent", "Session") == "Permanent"
	switch {
	case permanent && timeout == nil:
		o.Fault("add absoluteTimeout", "a permanent cookie needs an absoluteTimeout")
	case permanent && *timeout == 0 && absolute.IsText():
		absolute.Fault("", "a permanent cookie needs an absoluteTimeout above 0")
	case permanent:
		s.TTL = *timeout
	case absolute.Present():
		r.note(absolute, "absoluteTimeout has no effect on a cookie whose lifetimeType is Session")
	}
	return s
}

// ReadSessionHeader reads the name of the header that a session is identified by, in requests and responses, and
// returns it in lower case. Clients reject routes and Listeners with one that gRPC does not pass on.
func ReadSessionHeader(v document.Value) string {
	name, err := headeredit.Name(headeredit.Request, v.Text())
	if err == nil {
		_, err = headeredit.Name(headeredit.Response, name)
	}
	if err != nil && v.IsText() {
		v.Fault("use another name", "sessions cannot be identified by the %v", err)
	}
	return name
}

// ReadCookieName reads the name of a cookie, a token.
func ReadCookieName(v document.Value) string {
	name := v.NonEmptyText("the name of a cookie")
	if name != "" && !token.MatchString(name) {
		v.Fault("", "%q cannot be the name of a cookie (RFC 6265)", name)
	}
	return name
}

var cookiePath = regexp.MustCompile(`^[ -:<-~]*$`)

// ReadCookiePath reads the path of a cookie.
func ReadCookiePath(v document.Value) string {
	return readText(v, cookiePath, "", "%q cannot be the path of a cookie (RFC 6265)")
}
