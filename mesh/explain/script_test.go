package explain

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointpb "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerpb "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/common/matching/v3" // ExtensionWithMatcher
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/common/matcher/action/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/composite/v3"
	hcmpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/internal/inspect"
	"github.com/dynxds/dynxds/internal/livestate"
	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/internal/xdstest/golden"
	"github.com/dynxds/dynxds/xdsclient"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
)

// The scripts in testdata/scripts say what a client holds, and what is said of its RPCs. Messages are text protos, in which the names of
// messages of envoy.extensions are without that. The steps are
//
//	client NAME                 the user agent
//	trusted | xds true          the server has trusted_xds_server; the channel has xDS credentials, or has not
//	filter NAME MESSAGE         an HTTP filter of the Listener
//	route FIELDS, routes FIELDS a route, fields of the RouteConfiguration
//	domain NAME                 the domain of the virtual host, which is otherwise "*"
//	cluster NAME FIELDS         a Cluster of type EDS; "aggregate NAME MEMBERS" is one of that type
//	endpoints NAME ADDRESSES    a ClusterLoadAssignment, as is "assignment FIELDS"
//	lacks TYPE NAME STATE ERROR a resource that the client does not have
//	live INSPECT                a cluster of the running channel, as JSON
//	rpc HEADERS                 returns the outcome and the code
//	show WORDS                  returns the lines with these words of the text for the last RPC
//	expect CLUSTERS             returns why RPCs do not all go there
func TestScripts(t *testing.T) {
	golden.Scripts(t, "testdata/scripts/*.txt", 60, func(t testing.TB) func(string) string {
		w := &scripted{source: sourceOf(), routes: xdsmsg.RouteConfig("r", "*")}
		return func(line string) string { return w.step(t, line) }
	})
}

// scripted is the client of a script.
type scripted struct {
	source  *Source
	filters []*hcmpb.HttpFilter
	routes  *routepb.RouteConfiguration
	trusted bool
	live    livestate.State
	said    *Explanation
}

var extension = regexp.MustCompile(`\[((filters|common|load_balancing_policies|transport_sockets)\.)`)

func (w *scripted) step(t testing.TB, line string) string {
	verb, rest, _ := strings.Cut(line, " ")
	rest = extension.ReplaceAllString(rest, "[type.googleapis.com/envoy.extensions.$1")
	name, fields, _ := strings.Cut(rest, " ")
	switch verb {
	case "client":
		w.source.Client.Name = rest
	case "trusted":
		w.trusted = true
	case "xds":
		uses := rest == "true"
		w.source.UsesXDS = &uses
	case "filter":
		w.filters = append(w.filters, xdsmsg.With(&hcmpb.HttpFilter{Name: name}, "typed_config { %s }", fields))
	case "route":
		w.routes.VirtualHosts[0].Routes = append(w.routes.VirtualHosts[0].Routes, xdsmsg.With(new(routepb.Route), "%s", rest))
	case "routes":
		xdsmsg.With(w.routes, "%s", rest)
	case "domain":
		w.routes.VirtualHosts[0].Domains = []string{rest}
	case "cluster":
		w.hold(held(xdsmsg.With(xdsmsg.EDSCluster(name, ""), "%s", fields)))
	case "aggregate":
		w.hold(held(xdsmsg.AggregateCluster(name, strings.Fields(fields)...)))
	case "endpoints":
		w.hold(held(xdsmsg.SimpleEndpoints(name, strings.Fields(fields)...)))
	case "assignment":
		w.hold(held(xdsmsg.With(new(endpointpb.ClusterLoadAssignment), "%s", rest)))
	case "lacks":
		words := strings.Fields(rest)
		like := map[string]proto.Message{
			"Listener": &listenerpb.Listener{Name: words[1]}, "Cluster": &clusterpb.Cluster{Name: words[1]},
			"ClusterLoadAssignment": &endpointpb.ClusterLoadAssignment{ClusterName: words[1]},
		}[words[0]]
		w.hold(absentResource(like, words[2], strings.Join(words[3:], " ")))
	case "live":
		var c inspect.Cluster
		xdstest.NoError(t, json.Unmarshal([]byte(rest), &c))
		w.live.Clusters = slices.DeleteFunc(w.live.Clusters, func(o *livestate.Cluster) bool { return o.Name == c.Name })
		w.live.Clusters = append(w.live.Clusters, &livestate.Cluster{Name: c.Name, Target: "xds:///backend", Live: &c})
		w.source.State = &w.live
	case "rpc":
		return w.rpc(t, strings.Fields(rest))
	case "show":
		var shown []string
		for line := range strings.Lines(w.said.Text()) {
			if strings.Contains(line, rest) {
				shown = append(shown, strings.Join(strings.Fields(line), " "))
			}
		}
		return strings.Join(shown, " / ")
	case "expect":
		return w.said.Misses(strings.Fields(rest))
	default:
		t.Fatalf("unknown step %q", line)
	}
	return ""
}

// hold puts a resource in the place of the one of its name.
func (w *scripted) hold(r *Resource) {
	w.source.Resources = append(slices.DeleteFunc(w.source.Resources, func(o *Resource) bool { return o.TypeURL == r.TypeURL && o.Name == r.Name }), r)
}

func (w *scripted) rpc(t testing.TB, headers []string) string {
	request := Request{Target: "xds:///backend", Method: method, Headers: make(map[string][]string)}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, "=")
		request.Headers[name] = append(request.Headers[name], strings.ReplaceAll(value, "_", " "))
	}
	s := *w.source
	routes := held(w.routes)
	if w.trusted {
		var err error
		server := &bootstrap.Server{Features: []bootstrap.Feature{bootstrap.FeatureTrustedXDSServer}}
		routes.value, err = types[routes.TypeURL].Decode(routes.Raw, xdsclient.DecodeOptions{Server: server})
		xdstest.NoError(t, err)
	}
	s.Resources = append([]*Resource{routes}, w.source.Resources...)
	if !slices.ContainsFunc(s.Resources, func(r *Resource) bool { return r.TypeURL == typeurl.Listener }) {
		s.Resources = append(s.Resources, held(xdsmsg.DefaultListener("backend", "r", w.filters...)))
	}
	var err error
	w.said, err = Explain(&s, request)
	xdstest.NoError(t, err)
	return strings.TrimSpace(w.said.Outcome + " " + strings.TrimSuffix("("+w.said.Code+")", "()"))
}

// The routes of these tests may have a plugin.
func init() {
	xdsresource.RegisterPlugin("google.protobuf.StringValue", func(*anypb.Any) (policy, config string, err error) { return "chooser", "{}", nil })
}
