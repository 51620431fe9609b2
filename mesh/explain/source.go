package explain

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/anypb"

	_ "github.com/dynxds/dynxds/httpfilter/builtin" // Listeners have its filters
	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/inspect"
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
	// Listener is the name of the Listener, if the target alone does not give it.
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
	// ListenerName returns the name of the Listener for a target. nil: it is found by
	// comparing the target with the names of the Listeners.
	ListenerName func(target string) (string, error)
	// Live describes a cluster that routes lead to as the running channel has it. nil: there is
	// none.
	Live func(cluster string) (inspect.Cluster, bool)
	// Running says that this is a process. Reported then returns what the process says of a cluster beside its resources, or
	// nil; without it, or without Live, the state of connections is unknown.
	Running  bool
	Reported func(cluster string) *livestate.Cluster
	// UsesXDS is whether the channel's credentials leave the security of connections to the
	// control plane (gRFC A29). nil: that is not known.
	UsesXDS *bool
	// Notes are added to those of explanations.
	Notes []string
}

// A Resource is a resource that a client holds, or has asked for.
type Resource struct {
	TypeURL, Name string
	// Variant is the constraints that it is watched with or, for the member of a collection,
	// its parameters (xRFC TP2).
	Variant string
	// State is as in ResourceStatus.
	State string
	// Raw is the version in use. nil: none.
	Raw             *anypb.Any
	Version, Server string
	Updated         time.Time
	// FromDisk is as in ResourceStatus.
	FromDisk string
	// Error, ErrorVersion and ErrorTime are as in ResourceStatus.
	Error, ErrorVersion string
	ErrorTime           time.Time

	options xdsclient.DecodeOptions
}

// types has the types of resources by type URL.
var types = map[string]*xdsclient.ResourceType{
	typeurl.Listener:           xdsresource.ListenerType,
	typeurl.RouteConfiguration: xdsresource.RouteConfigurationType,
	typeurl.Cluster:            xdsresource.ClusterType,
	typeurl.Endpoints:          xdsresource.EndpointsType,
}

// decoded is what the decoder makes of a resource.
type decoded struct {
	value any
	err   error
	// ignored are the fields that the client ignores, and rejected is why it rejects the resource, or "".
	ignored  []IgnoredField
	rejected string
}

// holdings is the resources of a source, found by name and decoded once, as its client reads them.
type holdings struct {
	source         *Source
	implementation implementation
	index          map[resourceKey][]*Resource
	decoded        map[*Resource]decoded
}

func newHoldings(s *Source) *holdings {
	h := &holdings{source: s, implementation: implementationOf(s.Client.Name), index: make(map[resourceKey][]*Resource, len(s.Resources)), decoded: make(map[*Resource]decoded)}
	for _, r := range s.Resources {
		key := resourceKey{r.TypeURL, xdsname.Canonical(r.Name)}
		h.index[key] = append(h.index[key], r)
	}
	return h
}

// decode returns the value of a resource, nil if there is none. It decodes each once.
func (h *holdings) decode(r *Resource) (any, error) {
	if r.Raw == nil {
		return nil, nil
	}
	d, known := h.decoded[r]
	if !known {
		decode := types[r.TypeURL].Decode
		d.value, d.err = decode(r.Raw, r.options)
		if r.TypeURL == typeurl.Cluster && d.err == nil {
			var raw *anypb.Any
			if raw, d.ignored = h.implementation.cluster(r.Raw); raw != r.Raw {
				if value, err := decode(raw, r.options); err == nil {
					d.value = value
				} else {
					d.rejected = h.implementation.name + " has no policy of load_balancing_policy that it could use"
				}
			}
		}
		h.decoded[r] = d
	}
	return d.value, d.err
}

func (r *Resource) status() *ResourceStatus {
	variant := r.Variant
	if variant == "{}" {
		variant = "" // There is only one.
	}
	return &ResourceStatus{
		Type: typeurl.ShortName(r.TypeURL), Name: r.Name, State: r.State, Cached: r.Raw != nil, Version: r.Version, Server: r.Server,
		Updated: timeOrNil(r.Updated), FromDisk: r.FromDisk, Variant: variant,
		Error: r.Error, ErrorVersion: r.ErrorVersion, ErrorTime: timeOrNil(r.ErrorTime),
	}
}

func timeOrNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// Missing returns what RPCs wait for or why they fail, as the client does not have the resource in use.
func (s *ResourceStatus) Missing() (waits, fails string) {
	what := fmt.Sprintf("%s %q", s.Type, s.Name)
	switch {
	case s.Error != "":
		return "", fmt.Sprintf("the client has no %s: %s", what, s.Error)
	case s.State == "DOES_NOT_EXIST":
		return "", fmt.Sprintf("the client has no %s: the management server does not have it", what)
	case s.State == "":
		return "the client has not asked for " + what, ""
	case s.State == "ACKED":
		return fmt.Sprintf("the source does not say what is in %s, which the client has", what), ""
	default:
		return "the management server has not answered for " + what, ""
	}
}

// resourceKey identifies a resource by its type and its canonical name.
type resourceKey struct{ typeURL, name string }

// findResource returns the resource of a name, or nil. Of several, it is the one in use that is latest;
// entries is their number the first time, and later 1.
func (h *holdings) findResource(typeURL, name string) (best *Resource, entries int) {
	key := resourceKey{typeURL, xdsname.Canonical(name)}
	found := h.index[key]
	if len(found) == 0 {
		return nil, 0
	}
	best = slices.MaxFunc(found, func(a, b *Resource) int {
		return cmp.Or(compareBool(a.Raw != nil, b.Raw != nil), a.Updated.Compare(b.Updated))
	})
	h.index[key] = []*Resource{best}
	return best, len(found)
}

// findResource returns the resource of a name, or nil, and notes that there are several.
func (e *explainer) findResource(typeURL, name string) *Resource {
	best, entries := e.holdings.findResource(typeURL, name)
	if entries > 1 {
		e.note("the client has %d entries for %s %q: this is the one %s", entries, types[typeURL].Name, name, best.distinction())
	}
	return best
}

// distinction describes what distinguishes the entries of one name.
func (r *Resource) distinction() string {
	switch {
	case r.Variant != "" && r.Server != "":
		return fmt.Sprintf("of variant %s from %s", r.Variant, r.Server)
	case r.Variant != "":
		return "of variant " + r.Variant
	case r.Server != "":
		return "from " + r.Server
	default:
		return "that was received last"
	}
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	default:
		return -1
	}
}

// findListener returns the Listener of the request, and completes the authority.
func (e *explainer) findListener() (*Resource, error) {
	endpoint, authority := "", ""
	if e.request.Target != "" {
		var err error
		if authority, endpoint, err = ParseTarget(e.request.Target); err != nil {
			return nil, err
		}
	}
	if e.request.Authority == "" {
		e.request.Authority = cmp.Or(escaped(endpoint), e.request.Listener)
	}
	name := e.request.Listener
	if name == "" {
		if e.request.Target == "" {
			return nil, errors.New("name a target or a Listener")
		}
		if name = e.holdings.guess(authority, endpoint); e.source.ListenerName != nil {
			var err error
			if name, err = e.source.ListenerName(e.request.Target); err != nil {
				return nil, err
			}
		}
	}
	e.request.Listener = name
	if r := e.findResource(typeurl.Listener, name); r != nil {
		return r, nil
	}
	return nil, fmt.Errorf("%s has no Listener %q; it has %s", e.source.Client.Source, name, e.holdings.listeners())
}

// guess returns the name of the Listener that a channel most likely uses: "endpoint", or one
// that ends in "/endpoint". Only the bootstrap says which.
func (h *holdings) guess(authority, endpoint string) string {
	name := endpoint
	for _, r := range h.source.Resources {
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
func (h *holdings) listeners() string {
	var names []string
	for _, r := range h.source.Resources {
		if r.TypeURL == typeurl.Listener {
			names = append(names, faults.Shorten(r.Name, faults.MaxQuoted))
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	switch n := len(names); {
	case n == 0:
		return "none"
	case n > maxListed:
		return fmt.Sprintf("%s and %d more", strings.Join(names[:maxListed], ", "), n-maxListed)
	default:
		return strings.Join(names, ", ")
	}
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
		authority, endpoint = u.Host, strings.TrimPrefix(cmp.Or(u.Path, u.Opaque), "/")
	}
	if endpoint == "" {
		return "", "", fmt.Errorf(`the target %q names no service; want "xds:///service"`, target)
	}
	return authority, endpoint, nil
}
