package cluster_test

import (
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"

	"github.com/dynxds/dynxds/internal/dialect"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/internal/xdstest/golden"
	"github.com/dynxds/dynxds/mesh/explain"
	"github.com/dynxds/dynxds/mesh/internal/doctor"
	"github.com/dynxds/dynxds/mesh/internal/folder"
	"github.com/dynxds/dynxds/mesh/internal/site"
	"github.com/dynxds/dynxds/mesh/kubernetes/internal/checkup"
	"github.com/dynxds/dynxds/mesh/kubernetes/internal/cluster"
	"github.com/dynxds/dynxds/mesh/kubernetes/internal/kubetest"
	"github.com/dynxds/dynxds/mesh/kubernetes/internal/routestatus"
	"github.com/dynxds/dynxds/mesh/meshroute"
)

// Objects come, change and go: what is served then, and what status they have. The steps are:
//
//	KIND NAMESPACE/NAME SPEC     an object with a spec in YAML, of an EndpointSlice its ports and endpoints; "gone" deletes it;
//	                             of a route: its conditions, those for its next parent behind "|"
//	STATUS NAMESPACE/NAME STATUS a controller writes the status of the GRPCRoute
//	echo NAMESPACE/NAME IP       a Service with the port 8080 and one endpoint
//	endpoints SERVICE            the endpoints of a service of the mesh
//	names SERVICE                its other names
//	rpc TARGET METHOD TAG=VALUE HEADER:VALUE   the outcome of RPCs of a client, of another language with kind=grpc
//	messages KIND NAMESPACE/NAME the messages of the conditions of a route
//	reports                      the errors and warnings
//	doctor NAMESPACE/NAME        what a doctor says of a Service
//	changed                      the services that are others than at the last such step, and how many policies are
//	forget                       watches end, and the API server forgets from where they would go on
//	wait DURATION
//
// @service stands for the group and kind of a Service.
func TestTranscripts(t *testing.T) { golden.Scripts(t, "testdata/*.txt", 0, beginTranscript) }

// transcript is a Source of an API server in memory.
type transcript struct {
	t       testing.TB
	api     *apiServer
	source  *cluster.Source
	content *folder.Content
	// services and policies are what the step "changed" has seen last.
	services []*meshroute.Service
	policies []*meshroute.Policy
	// matches has the first match of each rule that was seen, and its policy.
	matches map[any]*meshroute.Policy
}

func newTranscript(t testing.TB) *transcript {
	log, tr := &xdstest.Log{}, &transcript{t: t, api: newAPIServer(rand.New(rand.NewPCG(1, 1))), matches: map[any]*meshroute.Policy{}}
	var err error
	tr.source, err = tr.api.open(t, log)
	xdstest.NoError(t, err)
	t.Cleanup(func() {
		tr.source.Close()
		xdstest.Equal(t, "outages that are logged, of an API server without WatchList", 0, log.Count("does not answer"))
	})
	return tr
}

func (a *apiServer) open(t testing.TB, log io.Writer) (*cluster.Source, error) {
	clients, err := cluster.NewClients(&rest.Config{Host: "http://api", Transport: a, QPS: -1})
	xdstest.NoError(t, err)
	return cluster.Open(t.Context(), cluster.Options{Clients: clients, Log: slog.New(slog.NewTextHandler(log, nil))})
}

// A permission that is missing is named at the start, but for that to read nodes.
func TestMissingPermission(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for resource, want := range map[string]string{
			"services": "does not let this server read services:", "endpointslices": "does not let this server read endpointslices.discovery.k8s.io:",
			"namespaces": "does not let this server read namespaces:", "grpcroutes": "does not let this server read grpcroutes.gateway.networking.k8s.io:", "nodes": "",
		} {
			api := newAPIServer(rand.New(rand.NewPCG(1, 1)))
			api.forbidden = []string{resource}
			source, err := api.open(t, io.Discard)
			if (err == nil) != (want == "") || err != nil && (!strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "deploy/kubernetes")) {
				t.Errorf("without %s: got error %v, want %q", resource, err, want)
			}
			if err == nil {
				source.Close()
			}
		}
	})
}

func beginTranscript(t testing.TB) (step func(string) string) { return newTranscript(t).step }

// resources are those of the kinds.
var resources = map[string]string{
	"Service": "services", "EndpointSlice": "endpointslices", "GRPCRoute": "grpcroutes", "HTTPRoute": "httproutes", "MeshHTTPRoute": "meshhttproutes",
	"ReferenceGrant": "referencegrants", "Namespace": "namespaces", "Node": "nodes",
}

func (tr *transcript) step(words string) string {
	command, rest, _ := strings.Cut(words, " ")
	first, rest, _ := strings.Cut(rest, " ")
	namespace, name, _ := strings.Cut(first, "/")
	of := named{namespace, name}
	switch command {
	case "echo":
		tr.api.set("services", of, tr.object("Service", "{ports: [{port: 8080}]}"))
		tr.api.set("endpointslices", named{namespace, name + "-1"}, tr.object("EndpointSlice", "{of: "+name+", ports: [{name: '', port: 8080}], endpoints: [{addresses: ["+rest+"]}]}"))
		tr.settle()
		return ""
	case "STATUS":
		o := tr.api.objects["grpcroutes"][of]
		tr.api.set("grpcroutes", of, object{"spec": o["spec"], "status": tr.yaml(rest), "metadata": object{"generation": o["metadata"].(object)["generation"]}})
		tr.settle()
		return ""
	case "endpoints":
		return tr.endpoints(first)
	case "names":
		var names []string
		for _, a := range tr.service(first).Aliases {
			names = append(names, strings.TrimSuffix(a.Name+" in "+a.Namespace, " in "))
		}
		return strings.Join(names, ", ")
	case "rpc":
		return tr.rpc(first, strings.Fields(rest))
	case "messages":
		namespace, name, _ := strings.Cut(rest, "/")
		return tr.conditions(first, named{namespace, name}, func(c map[string]any) string { return fmt.Sprint(c["message"]) })
	case "reports":
		v, err := site.ValidateContent(tr.content, "")
		xdstest.NoError(tr.t, err)
		var texts []string
		for _, r := range v.Reports {
			if r.Severity != meshroute.Note {
				texts = append(texts, r.String())
			}
		}
		return strings.Join(texts, "; ")
	case "doctor":
		return tr.doctor(of)
	case "changed":
		return tr.changed()
	case "forget":
		tr.api.end(true)
		return ""
	case "wait":
		after, err := time.ParseDuration(first)
		xdstest.NoError(tr.t, err)
		time.Sleep(after)
		tr.settle()
		return ""
	}
	tr.api.set(resources[command], of, tr.object(command, rest))
	tr.settle()
	if strings.HasSuffix(command, "Route") {
		return tr.conditions(command, of, func(c map[string]any) string { return fmt.Sprintf("%s=%s/%s", c["type"], c["status"], c["reason"]) })
	}
	return ""
}

func (tr *transcript) yaml(text string) (o object) {
	tr.t.Helper()
	xdstest.NoError(tr.t, yaml.Unmarshal([]byte(strings.ReplaceAll(text, "@service", `group: "", kind: Service`)), &o))
	return o
}

// object is one of a kind, nil if it is gone.
func (tr *transcript) object(kind, text string) object {
	if text == "gone" {
		return nil
	}
	o := tr.yaml(text)
	switch kind {
	case "EndpointSlice":
		o["metadata"] = object{"labels": object{"kubernetes.io/service-name": o["of"]}}
		if o["addressType"] == nil {
			o["addressType"] = "IPv4"
		}
	case "Namespace", "Node":
		o = object{"metadata": object{"labels": o}}
	default:
		o = object{"spec": o}
	}
	return o
}

// settle reads what the informers have got.
func (tr *transcript) settle() {
	time.Sleep(50 * time.Millisecond) // the events of a watch come late
	synctest.Wait()
	content, err := tr.source.Read(tr.t.Context())
	xdstest.NoError(tr.t, err)
	tr.content = content
	for _, p := range content.Policies {
		for i := range p.To[0].Rules {
			match := &p.To[0].Rules[i].Matches[0]
			if old := tr.matches[match]; old != nil && old != p {
				tr.t.Errorf("a version of %s was made in the matches of an earlier one, which others may read", p.Name)
			}
			tr.matches[match] = p
		}
	}
}

func (tr *transcript) service(name string) *meshroute.Service {
	for _, s := range tr.content.Services {
		if s.Name == name {
			return s
		}
	}
	return &meshroute.Service{}
}

func (tr *transcript) endpoints(service string) string {
	s := tr.service(service)
	list := []string{}
	if s.ExternalName != "" {
		list = append(list, s.ExternalName)
	}
	for _, e := range s.Endpoints {
		text := strings.Join(append([]string{e.Address}, e.AdditionalAddresses...), "+")
		if e.Health != corepb.HealthStatus_UNKNOWN {
			text += " " + e.Health.String()
		}
		for what, values := range map[string][]string{" zones ": e.ForZones, " nodes ": e.ForNodes} {
			if len(values) > 0 {
				text += what + strings.Join(values, "+")
			}
		}
		list = append(list, text)
	}
	if len(list) == 0 {
		return "none"
	}
	return strings.Join(list, ", ")
}

var tag, header = regexp.MustCompile(`^(\w+)=(.*)$`), regexp.MustCompile(`^([\w-]+):(.*)$`)

// rpc explains an RPC of a client.
func (tr *transcript) rpc(target string, words []string) string {
	view := site.View{Content: tr.content, Tags: map[string]string{}}
	request := explain.Request{Target: "xds:///" + target, Method: words[0], Headers: map[string][]string{}}
	for _, word := range words[1:] {
		if of := tag.FindStringSubmatch(word); of != nil {
			view.Tags[of[1]] = of[2]
			view.Implementation = map[string]meshroute.Implementation{"grpc": dialect.OtherGRPC}[view.Tags["kind"]]
		}
		if of := header.FindStringSubmatch(word); of != nil {
			request.Headers[of[1]] = []string{of[2]}
		}
	}
	e, err := site.ExplainRPC(view, request)
	if err != nil {
		return err.Error()
	}
	return e.Outcome
}

// conditions are those of a route for each of its parents.
func (tr *transcript) conditions(kind string, of named, text func(map[string]any) string) string {
	routes, _ := tr.source.Routes()
	i := slices.IndexFunc(routes, func(r *cluster.Route) bool {
		return r.Object.GetKind() == kind && r.Name() == of.namespace+"/"+of.name
	})
	if i < 0 {
		return "no status"
	}
	var list []string
	for _, p := range routes[i].Parents {
		var conditions []string
		for _, c := range routestatus.ConditionsOf(routes[i], p, "") {
			conditions = append(conditions, text(c))
		}
		list = append(list, strings.Join(conditions, "; "))
	}
	return strings.Join(list, " | ")
}

// doctor is what is found of a Service, but for what is good.
func (tr *transcript) doctor(of named) string {
	v, err := site.ValidateContent(tr.content, "")
	xdstest.NoError(tr.t, err)
	r := &doctor.Report{}
	checkup.Service(r, of.namespace+"/"+of.name, tr.source.ServiceState(of.namespace, of.name), v.Reports)
	var list []string
	for _, c := range r.Checks {
		list = append(list, strings.TrimSuffix(fmt.Sprintf("%s %s %s: %s (%s)", c.Result, c.Step, c.Name, c.Text, c.Fix), " ()"))
	}
	return strings.Join(list, " | ")
}

func (tr *transcript) changed() string {
	var names []string
	for _, s := range tr.content.Services {
		if !slices.Contains(tr.services, s) {
			names = append(names, s.Name)
		}
	}
	policies := 0
	for _, p := range tr.content.Policies {
		if !slices.Contains(tr.policies, p) {
			policies++
		}
	}
	tr.services, tr.policies = tr.content.Services, tr.content.Policies
	return strings.Join(append(names, fmt.Sprintf("%d policies", policies)), ", ")
}

// Whatever objects there are in a namespace, clients of another one get of its Service what they got without.
func FuzzOddObjects(f *testing.F) {
	for seed := range uint64(25) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		synctest.Test(t, func(t *testing.T) {
			odd, tr := kubetest.Odd(rand.New(rand.NewPCG(seed, 0)), "theirs", "greeter.ours"), newTranscript(t)
			tr.step("echo ours/greeter 10.0.0.1")
			tr.step(`MeshHTTPRoute ours/greeter {targetRef: {kind: MeshSubset, tags: {zone: a}}, to: [{targetRef: {kind: MeshService, name: greeter}, rules: [
				{filters: [{type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: zone, value: a}]}}]}]}]}`)
			want := tr.rendered()
			for range 5 {
				for range 6 {
					object, err := odd()
					xdstest.NoError(t, err)
					tr.api.set(resources[object.GetKind()], named{"theirs", object.GetName()}, object.Object)
				}
				tr.settle()
				xdstest.Equal(t, "what clients get beside odd objects", want, tr.rendered())
			}
		})
	})
}

// rendered is what clients of the namespace ours get of greeter.ours.
func (tr *transcript) rendered() string {
	tr.t.Helper()
	_, err := site.ValidateContent(tr.content, "")
	xdstest.NoError(tr.t, err)
	var text strings.Builder
	for _, zone := range []string{"a", "b"} {
		items, err := site.Resources(site.View{Content: tr.content, Service: "greeter.ours:8080", Tags: map[string]string{"namespace": "ours", "service": "default.ours", "zone": zone}})
		xdstest.NoError(tr.t, err)
		for _, item := range items {
			fmt.Fprintln(&text, item.TypeURL, item.Name, item.Err)
			if item.Err == nil {
				fmt.Fprintln(&text, protojson.Format(item.Resource.Any()))
			}
		}
	}
	return text.String()
}
