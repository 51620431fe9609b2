package explain

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	_ "github.com/dynxds/dynxds/httpfilter/builtin" // Listeners have its filters
	"github.com/dynxds/dynxds/internal/dialect"
	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/livestate"
	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/internal/xdsname"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/xdsclient"
)

// Request describes RPCs of one method.
type Request struct {
	// Target is what the channel was dialled with, "xds:///backend", or only "backend".
	Target string `json:"target,omitempty"`
	// Channel is the number of the channel in its process, if several have the target. 0: any.
	Channel uint64 `json:"channel,omitempty"`
	// Listener is the name of the Listener. Empty: it is found by comparing the target with the names of the Listeners.
	Listener string `json:"listener,omitempty"`
	// Method is the full method, "/package.Service/Method".
	Method string `json:"method"`
	// Headers is the metadata, with keys in lower case.
	Headers map[string][]string `json:"headers,omitempty"`
	// Authority is that of the channel (grpc.WithAuthority). Empty: the target's endpoint.
	Authority string `json:"authority,omitempty"`
	// Secure is set if the scheme is "https".
	Secure bool `json:"secure,omitempty"`
}

// A Source is what one xDS client holds, or would hold.
type Source struct {
	Client    Client
	Resources []*Resource
	// State is what a process says of itself, nil if it does not say. Running says that this is another process, of which the state
	// of connections is otherwise unknown.
	State   *livestate.State
	Running bool
	// UsesXDS is whether the channel's credentials leave the security of connections to the
	// control plane (gRFC A29). nil: that is not known.
	UsesXDS *bool
	// Notes are added to those of explanations.
	Notes []string
}

// A Resource is a resource that a client holds, or has asked for.
type Resource struct {
	// ResourceStatus is without what the fields below and an explanation say: Type, Cached, Ignored and Faults.
	ResourceStatus
	TypeURL string
	// Raw is the version in use. nil: none.
	Raw *anypb.Any

	// value is that of Raw; nil: decode makes it, or err. message is Raw as a message, for what the value does not keep: levels, the
	// configurations of filters, and places. ignored are the fields that the client ignores, and rejected is why it rejects the resource.
	decoded  bool
	value    any
	err      error
	message  proto.Message
	ignored  []xdsclient.Ignored
	rejected []string
}

// types has the types of resources by type URL.
var types = map[string]*xdsclient.ResourceType{
	typeurl.Listener:           xdsresource.ListenerType,
	typeurl.RouteConfiguration: xdsresource.RouteConfigurationType,
	typeurl.Cluster:            xdsresource.ClusterType,
	typeurl.Endpoints:          xdsresource.EndpointsType,
}

// resourceKey identifies a resource by its type and its canonical name.
type resourceKey struct{ typeURL, name string }

// findResource returns the resource of a name, or nil.
func (e *explainer) findResource(typeURL, name string) *Resource {
	all := e.index[resourceKey{typeURL, xdsname.Canonical(name)}]
	if len(all) == 0 {
		return nil
	}
	if len(all) > 1 {
		e.note("the client has %d entries for %s %q: this is the latest that it uses", len(all), types[typeURL].Name, name)
	}
	return all[0]
}

// decode decodes a resource in use as the client reads it, once.
func (e *explainer) decode(r *Resource) {
	if r.decoded {
		return
	}
	typ := types[r.TypeURL]
	r.decoded = true
	if as := e.implementation; r.TypeURL == typeurl.Cluster && as.Implementation != dialect.Dynxds {
		if value, err := xdsresource.DecodeClusterAs(as.Implementation, r.Raw); err == nil {
			r.value = value
		} else {
			r.rejected = []string{as.name + " has no policy of load_balancing_policy that it could use"}
		}
	}
	if r.value == nil {
		if r.value, r.err = typ.Decode(r.Raw, xdsclient.DecodeOptions{}); r.err != nil {
			return
		}
	}
	r.message, _ = r.Raw.UnmarshalNew() // which cannot fail: it was decoded before
	r.ignored = slices.Clone(typ.Ignored(r.value))
	r.rejected = append(e.implementation.rejects(r.value, r.message), r.rejected...)
}

// status returns what is known of the resource without reading it.
func (r *Resource) status() *ResourceStatus {
	s := r.ResourceStatus
	s.Type, s.Cached = typeurl.ShortName(r.TypeURL), r.Raw != nil
	if s.Variant == "{}" {
		s.Variant = "" // There is only one.
	}
	return &s
}

// Status describes the resource, of any type, with what dynxds ignores of it.
func (r *Resource) Status() *ResourceStatus {
	s := r.status()
	s.State = cmp.Or(s.State, "UNKNOWN")
	if r.Raw != nil {
		ignored, err := xdsresource.IgnoredFields(r.Raw)
		if s.Ignored = ignored; err != nil {
			s.Faults = []string{"cannot determine the ignored fields: " + err.Error()}
		}
	}
	return s
}

// Missing returns what becomes of RPCs, as the client does not have the resource in use.
func (s *ResourceStatus) Missing() Fate {
	what := fmt.Sprintf("%s %q", s.Type, s.Name)
	switch {
	case s.Error != "":
		return Fate{Error: fmt.Sprintf("the client has no %s: %s", what, s.Error)}
	case s.State == "DOES_NOT_EXIST":
		return Fate{Error: fmt.Sprintf("the client has no %s: the management server does not have it", what)}
	case s.State == "":
		return Fate{Waits: "the client has not asked for " + what}
	case s.State == "ACKED":
		return Fate{Waits: fmt.Sprintf("the source does not say what is in %s, which the client has", what)}
	default:
		return Fate{Waits: "the management server has not answered for " + what}
	}
}

// findListener names the Listener of the request, and completes the authority.
func (e *explainer) findListener() (err error) {
	r, authority, endpoint := e.request, "", ""
	if r.Target != "" {
		if authority, endpoint, err = ParseTarget(r.Target); err != nil {
			return err
		}
	} else if r.Listener == "" {
		return errors.New("name a target or a Listener")
	}
	r.Authority = cmp.Or(r.Authority, escaped(endpoint), r.Listener)
	if r.Listener == "" {
		r.Listener = e.guess(authority, endpoint)
	}
	if e.findResource(typeurl.Listener, r.Listener) == nil {
		return fmt.Errorf("%s has no Listener %q; it has %s", e.source.Client.Source, r.Listener, e.listeners())
	}
	return nil
}

// guess returns the name of the Listener that a channel most likely uses: "endpoint", or one
// that ends in "/endpoint". Only the bootstrap says which.
func (e *explainer) guess(authority, endpoint string) string {
	name := endpoint
	for _, r := range e.source.Resources {
		in, _ := xdsname.Authority(r.Name)
		switch {
		case r.TypeURL != typeurl.Listener, authority != "" && in != authority:
		case r.Name == endpoint:
			return endpoint
		case strings.HasSuffix(r.Name, "/"+endpoint), strings.HasSuffix(r.Name, "/"+xdsname.EncodeID(endpoint)):
			name = r.Name
		}
	}
	return name
}

// escaped returns the authority that gRPC makes of a target's endpoint.
func escaped(endpoint string) string {
	var b strings.Builder
	for _, c := range []byte(endpoint) {
		switch {
		case '0' <= c && c <= '9', 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', strings.IndexByte("-_.~!$&'()*+,;=:[]@", c) >= 0:
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

// maxListed bounds the names in an error.
const maxListed = 20

// listeners lists the Listeners for an error.
func (e *explainer) listeners() string {
	var names []string
	for _, r := range e.source.Resources {
		if r.TypeURL == typeurl.Listener {
			names = append(names, faults.Printable(faults.Shorten(r.Name, faults.MaxQuoted), ""))
		}
	}
	slices.Sort(names)
	return cmp.Or(faults.Few(slices.Compact(names), maxListed, ", "), "none")
}

// ParseTarget returns the xDS authority of a target, which is mostly empty, and its endpoint:
// "backend" of "xds:///backend", and of "backend".
func ParseTarget(target string) (authority, endpoint string, err error) {
	endpoint = target
	if strings.Contains(target, "://") || strings.HasPrefix(target, "xds:") || strings.HasPrefix(target, "dynxds:") {
		u, err := url.Parse(target)
		if err != nil {
			return "", "", fmt.Errorf("%q is not a target: %w", target, err)
		}
		if u.Scheme != "xds" && u.Scheme != "dynxds" {
			return "", "", fmt.Errorf("the target %q is not for xDS: want xds:///SERVICE", target)
		}
		authority, endpoint = u.Host, strings.TrimPrefix(cmp.Or(u.Path, u.Opaque), "/")
	}
	if endpoint == "" {
		return "", "", fmt.Errorf(`the target %q names no service; want "xds:///service"`, target)
	}
	return authority, endpoint, nil
}

// SameTarget reports whether two targets lead to the same resources.
func SameTarget(one, other string) bool {
	authority, endpoint, err := ParseTarget(one)
	a, e, wrong := ParseTarget(other)
	return err == nil && wrong == nil && a == authority && e == endpoint
}

// read unmarshals a message that was decoded before, so that it cannot fail, and returns it.
func read[M proto.Message](a *anypb.Any, m M) M {
	_ = proto.Unmarshal(a.GetValue(), m)
	return m
}
