package explain

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"regexp"
	"strings"

	listenerpb "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/internal/dialect"
	"github.com/dynxds/dynxds/internal/livestate"
	"github.com/dynxds/dynxds/internal/matching"
	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/internal/xdsname"
	"github.com/dynxds/dynxds/internal/xdsresource"
)

// Explain describes what happens to the RPCs of a request. RPCs that fail are explained too; it is an error
// if the request is malformed, or if the client has no Listener for its target.
func Explain(s *Source, request Request) (*Explanation, error) {
	request, err := request.normal()
	if err != nil {
		return nil, err
	}
	e, err := begin(s, request)
	if err != nil {
		return nil, err
	}
	e.rpc = matching.RPC{
		Method: request.Method, Authority: e.request.Authority,
		Context: metadata.NewOutgoingContext(context.Background(), request.Headers),
	}
	if request.Secure {
		e.rpc.Scheme = "https"
	}
	// gRPC sends no other one, whatever the metadata has.
	if values := request.Headers["content-type"]; len(values) > 0 && strings.HasPrefix(values[0], "application/grpc") {
		e.rpc.ContentType = values[0]
	}
	if e.resolve() {
		e.tryRoutes()
		e.describeClusters()
		e.conclude()
	}
	for _, s := range e.out.Client.Servers {
		if !s.Connected && s.Error != "" {
			e.note("management server %s is unreachable: %s; what the client holds may be old", s.URI, s.Error)
		}
	}
	e.out.Notes = append(e.out.Notes, s.Notes...)
	return e.out, nil
}

// SurveySource surveys the channel of a request's target or Listener by what a client holds: what its RPCs may use, whatever their methods
// and headers are. The Explanation has the Listener, the RouteConfiguration, the virtual hosts, all clusters that routes of the chosen one lead
// to, without shares, and Services; it has no routes. Missing resources are a part of it; it is an error if the client has not asked for the Listener.
func SurveySource(s *Source, request Request) (*Explanation, error) {
	e, err := begin(s, request)
	if err != nil {
		return nil, err
	}
	if e.resolve() {
		e.out.Services = make(map[string]string)
		for _, in := range e.listener.Filters {
			if c, ok := in.Config.(interface{ Needs() string }); ok && !in.Disabled && c.Needs() != "" {
				e.out.Services[in.Name] = c.Needs()
			}
		}
		for name := range e.virtualHost.Clusters {
			e.useCluster(name)
		}
		e.describeClusters()
	}
	e.out.Notes = append(e.out.Notes, s.Notes...)
	return e.out, nil
}

// explainer makes one Explanation.
type explainer struct {
	source         *Source
	implementation implementation
	// index has copies of the resources of the source, which decode completes. Of several of one name the one in use that is latest is the first.
	index map[resourceKey][]*Resource

	out     *Explanation
	request *Request // of out
	rpc     matching.RPC

	listener    *xdsresource.Listener
	routes      *xdsresource.RouteConfiguration // the virtual host's
	virtualHost *xdsresource.VirtualHost
	// rawListener and rawHost are these as messages.
	rawListener *listenerpb.Listener
	rawHost     *routepb.VirtualHost
	// uses are the clusters that RPCs go to, and clusters are these and their members by name.
	uses     []*Cluster
	clusters map[string]*Cluster
	// said has what the process says of the channel's clusters, by name.
	said map[string]*livestate.Cluster
	// selectable has the clusters that a header may name.
	selectable map[string]bool
	noted      map[string]bool
	// filterConfigs are those of the Listener.
	filterConfigs map[string]json.RawMessage
	// details is how much was afforded, see afford; full is set if there was more.
	details int
	full    bool
}

// begin begins an explanation. It is an error if there is no Listener.
func begin(s *Source, request Request) (*explainer, error) {
	out := &Explanation{Request: request, Client: s.Client}
	e := &explainer{
		source: s, implementation: implementation{cmp.Or(s.Client.Name, "another gRPC client"), dialect.Of(s.Client.Name, nil)}, index: make(map[resourceKey][]*Resource, len(s.Resources)),
		out: out, request: &out.Request, noted: make(map[string]bool), selectable: make(map[string]bool), filterConfigs: make(map[string]json.RawMessage),
		clusters: make(map[string]*Cluster), said: make(map[string]*livestate.Cluster),
	}
	for _, r := range s.Resources {
		key, own := resourceKey{r.TypeURL, xdsname.Canonical(r.Name)}, *r
		all := append(e.index[key], &own)
		if best := all[0]; best.Raw == nil && r.Raw != nil || (best.Raw == nil) == (r.Raw == nil) && r.Updated.After(best.Updated) {
			all[0], all[len(all)-1] = &own, best
		}
		e.index[key] = all
	}
	if s.State != nil {
		out.Client.Servers = s.State.Servers
		for i := range s.State.Channels {
			if c := &s.State.Channels[i]; SameTarget(c.Target, request.Target) {
				out.Client.Channel = c.State
			}
		}
	}
	return e, e.findListener()
}

// maxDetails bounds what may be repeated in an explanation, in bytes of JSON or so: the filters of many
// routes, the header edits of many clusters, the members and endpoints that many clusters have in common.
// A dump of a few megabytes would otherwise fill the memory.
const maxDetails = 32 << 20

// ignoredDetails is about what an ignored field needs in an explanation.
const ignoredDetails = 200

// afford reports whether n bytes of details can be added. Once there were too many, none are, and there
// is a note.
func (e *explainer) afford(n int) bool {
	if e.full = e.full || e.details+n > maxDetails; e.full {
		e.note("the explanation is too long to have all filters, header edits, members of clusters and endpoints: some are left out")
		return false
	}
	e.details += n
	return true
}

// resolve finds the virtual host. Without one it ends the explanation.
func (e *explainer) resolve() bool {
	var fate Fate
	if e.out.Listener, e.listener, e.rawListener, fate = find[*xdsresource.Listener, *listenerpb.Listener](e, typeurl.Listener, e.request.Listener); e.listener == nil {
		e.end(fate)
		inProcess := e.source.State != nil && !e.source.Running
		if e.implementation.Implementation == dialect.Dynxds && !inProcess && !e.out.Listener.Cached && e.out.Listener.State == "DOES_NOT_EXIST" {
			e.out.Code, e.out.Outcome = "", fmt.Sprintf("RPCs go to the addresses in DNS, unless the channel has used xDS before, has xDS credentials, or dns_fallback is %q; "+
				"then they fail with UNAVAILABLE: %s", "never", fate.Error)
		}
		return false
	}
	manager := read(e.rawListener.GetApiListener().GetApiListener(), new(hcmpb.HttpConnectionManager))
	for _, f := range manager.GetHttpFilters() {
		e.filterConfigs[f.GetName()] = asJSON(f.GetTypedConfig())
	}
	raw := manager.GetRouteConfig()
	if e.out.RouteConfig, e.routes = e.out.Listener, e.listener.RouteConfig; e.routes == nil {
		if e.out.RouteConfig, e.routes, raw, fate = find[*xdsresource.RouteConfiguration, *routepb.RouteConfiguration](e, typeurl.RouteConfiguration, e.listener.RouteConfigName); e.routes == nil {
			e.end(fate)
			return false
		}
	}
	e.chooseHost(raw)
	return e.virtualHost != nil
}

// find returns the status of the resource of a name, its value, and the resource as a message. Without one it returns what becomes of
// RPCs that need it.
func find[V any, M proto.Message](e *explainer, typeURL, name string) (status *ResourceStatus, value V, message M, fate Fate) {
	r := e.findResource(typeURL, name)
	if r == nil {
		r = &Resource{TypeURL: typeURL, ResourceStatus: ResourceStatus{Name: name}}
	}
	if status = r.status(); r.Raw == nil {
		return status, value, message, status.Missing()
	}
	if e.decode(r); r.err != nil {
		status.Faults = []string{r.err.Error()}
		fate.Unknown = fmt.Sprintf("dynxds cannot use %s %q, although the client does: %v", status.Type, status.Name, r.err)
		return status, value, message, fate
	}
	e.examine(status, r)
	message, _ = r.message.(M)
	return status, r.value.(V), message, fate
}

// end ends the explanation, as no RPC gets to a cluster.
func (e *explainer) end(fate Fate) {
	switch {
	case fate.Error != "":
		e.out.Code, e.out.Outcome = unavailable, "RPCs fail with UNAVAILABLE: "+fate.Error
	case fate.Waits != "":
		e.out.Outcome = "RPCs wait: " + fate.Waits
	default:
		e.out.Outcome = "unknown: " + fate.Unknown
	}
}

// examine adds to the status of a resource what of it the client ignores and rejects.
func (e *explainer) examine(status *ResourceStatus, r *Resource) {
	if len(r.ignored) > 0 && e.afford(ignoredDetails*len(r.ignored)) {
		status.Ignored = r.ignored
	}
	switch {
	case status.FromDisk != "":
		e.note("%s %q is from disk, %s: no management server has answered for it", status.Type, status.Name, status.FromDisk)
	case status.State == "NACKED":
		e.note("%s %q: version %q stays in use, as the client has rejected a newer one: %s", status.Type, status.Name, status.Version, status.Error)
	case status.Error != "":
		e.note("%s %q: version %q stays in use, although the last answer is: %s", status.Type, status.Name, status.Version, status.Error)
	}
	if status.Faults = r.rejected; len(status.Faults) > 0 {
		e.note("%s %q: the client rejects it: %s", status.Type, status.Name, status.Faults[0])
	}
}

func (e *explainer) note(format string, args ...any) {
	note := fmt.Sprintf(format, args...)
	if e.noted[note] {
		return
	}
	e.noted[note] = true
	e.out.Notes = append(e.out.Notes, note)
}

// withShare puts a share before a text, unless it is everything.
func withShare(share float64, text string) string {
	if share >= 100 {
		return text
	}
	return formatPercent(share) + " " + text
}

// percent rounds a share to a millionth of the whole, the unit of fractions.
func percent(share float64) float64 { return math.Round(share*10_000) / 10_000 }

var (
	errMethod = errors.New(`want the full method, "/package.Service/Method"`)
	// fullMethod is what a method has to be, and likeMethod what may stand for one.
	fullMethod = regexp.MustCompile(`(?s)^/[^/].*/.*[^/]$`)
	likeMethod = regexp.MustCompile(`^/*([^/]+)/([^/]+)/*$|^([^/]+)\.([^/.]+)/*$`)
	// headerName and printable follow google.golang.org/grpc/metadata.
	headerName = regexp.MustCompile(`^[0-9a-z_.-]+$`)
	printable  = regexp.MustCompile(`^[ -~]*$`)
)

// Check returns an error for a malformed request.
func (r Request) Check() error {
	_, err := r.normal()
	return err
}

// normal checks a request, and completes it.
func (r Request) normal() (Request, error) {
	if path, _ := matching.SplitQuery(r.Method); path == "" {
		return r, errMethod
	} else if like := likeMethod.FindStringSubmatch(path); !fullMethod.MatchString(path) && like != nil {
		return r, fmt.Errorf("%q: %w; did you mean %q?", r.Method, errMethod, "/"+like[1]+like[3]+"/"+like[2]+like[4])
	} else if !fullMethod.MatchString(path) {
		return r, fmt.Errorf("%q: %w", r.Method, errMethod)
	}
	headers := make(map[string][]string, len(r.Headers))
	for name, values := range r.Headers {
		key := strings.ToLower(name)
		switch {
		case strings.HasPrefix(key, ":") || key == "host":
			return r, fmt.Errorf("header %q is made by gRPC: the authority and the method of the request determine it", name)
		case !headerName.MatchString(key):
			return r, fmt.Errorf("%q is not the name of a header", name)
		case !strings.HasSuffix(key, "-bin") && !printable.MatchString(strings.Join(values, "")):
			return r, fmt.Errorf("header %q: gRPC sends printable ASCII only, or anything in a header whose name ends with -bin", name)
		}
		headers[key] = append(headers[key], values...)
	}
	if r.Headers = headers; len(headers) == 0 {
		r.Headers = nil
	}
	return r, nil
}
