package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/structpb"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/internal/cmdtest"
	"github.com/dynxds/dynxds/mesh/kubernetes/internal/cluster"
	"github.com/dynxds/dynxds/mesh/kubernetes/internal/routestatus"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
	"github.com/dynxds/dynxds/testutils"
)

// refuser is a client that rejects routes.
type refuser struct {
	*cmdtest.Stream[discoverypb.DiscoveryRequest, discoverypb.DiscoveryResponse]
	names []string
	last  *discoverypb.DiscoveryResponse
}

// refuser subscribes to the routes to some Services, each with one port, as a client of this namespace.
func (k *kube) refuser(server, id string, services ...string) *refuser {
	k.t.Helper()
	r := &refuser{Stream: cmdtest.SotW(k.t, cmdtest.Dial(k.t, server))}
	for _, s := range services {
		r.names = append(r.names, s+":8080")
	}
	metadata, err := structpb.NewStruct(map[string]any{"namespace": k.namespace})
	xdstest.NoError(k.t, err)
	r.Send(&discoverypb.DiscoveryRequest{TypeUrl: typeurl.RouteConfiguration, ResourceNames: r.names, Node: &corepb.Node{Id: id, Metadata: metadata}})
	r.last = r.Recv()
	return r
}

// answer accepts the last response, or rejects it for a reason.
func (r *refuser) answer(reason string) {
	request := &discoverypb.DiscoveryRequest{TypeUrl: typeurl.RouteConfiguration, ResourceNames: r.names, ResponseNonce: r.last.GetNonce()}
	if reason == "" {
		request.VersionInfo = r.last.GetVersionInfo()
	} else {
		request.ErrorDetail = &statuspb.Status{Code: int32(codes.InvalidArgument), Message: reason}
	}
	r.Send(request)
}

// awaitRefused waits until the condition of a GRPCRoute that clients refuse it has all texts; no texts: there is none.
func (k *kube) awaitRefused(name string, texts ...string) (resourceVersion string) {
	k.t.Helper()
	return k.awaitStatus(cluster.GRPCRoutes, name, func(conditions []map[string]any) string {
		got := ""
		for _, c := range conditions {
			if c["type"] == routestatus.Refused {
				got += fmt.Sprintf("%s %s", c["status"], c["message"])
			}
		}
		lacks := func(text string) bool { return !strings.Contains(got, text) }
		if len(conditions) == 0 || (got == "") != (len(texts) == 0) || slices.ContainsFunc(texts, lacks) {
			return fmt.Sprintf("clients are said to refuse %s: %q, want %q", name, got, texts)
		}
		return ""
	})
}

// awaitEvent waits for an event of a route, and returns how many events of this reason there are, and how often they were counted.
func (k *kube) awaitEvent(name, reason string, texts ...string) (objects int, count int32) {
	k.t.Helper()
	cmdtest.Await(k.t, func() string {
		list, err := k.client.CoreV1().Events(k.namespace).List(testutils.Context(k.t), metav1.ListOptions{FieldSelector: "involvedObject.name=" + name + ",reason=" + reason})
		xdstest.NoError(k.t, err)
		var got []string
		objects, count = len(list.Items), 0
		for _, e := range list.Items {
			got = append(got, e.Type+" "+e.InvolvedObject.Kind+" "+e.Message)
			count += e.Count
		}
		for _, text := range texts {
			if !strings.Contains(strings.Join(got, "; "), text) {
				return fmt.Sprintf("the events of %s with the reason %s are %q, want %q", name, reason, got, text)
			}
		}
		return ""
	})
	return objects, count
}

// The status and events of a route say which clients refuse it and why, as long as they do; those that the route is not for do not
// count. What has not changed is not written.
func TestRefusedRoutes(t *testing.T) {
	t.Parallel()
	k, pods := newKubeAlone(t), &pods{}
	other := k.in(k.addNamespace())
	// A server with another Lease, or one that holds the same, knows no client of this one.
	server := k.serving(func(f *flags) { f.leaseNamespace, f.namespaces = k.namespace, []string{k.namespace, other.namespace} })
	k.object(policy("wide", `{to: [{targetRef: {kind: Mesh}, rules: [{filters: [{requestHeaderModifier: {set: [{name: a, value: b}]}}]}]}]}`))
	for _, name := range []string{"greeter", "reeter"} {
		k.echo(pods, name, 8080)
		k.object(strings.ReplaceAll(route(name, "NS", name, "{name: "+name+", port: 8080}"), "\n", " "))
		k.awaitConditions(name, "Accepted=True/Accepted", "ResolvedRefs=True/ResolvedRefs")
	}
	other.object(route("consumer", k.namespace, "greeter", "{name: reeter, namespace: "+k.namespace+", port: 8080}"))
	other.awaitConditions("consumer", "Accepted=True/Accepted", "ResolvedRefs=False/RefNotPermitted")
	other.awaitEvent("consumer", "RefNotPermitted", "Warning GRPCRoute no ReferenceGrant lets the route use "+k.namespace+"/reeter")

	host := func(name string) string { return name + "." + k.namespace }
	one := k.refuser(server, "one", host("greeter"), host("reeter"))
	two, three := k.refuser(server, "two", host("greeter")), k.refuser(server, "three", host("greeter"))
	foreign := other.refuser(server, "foreign", host("greeter"))
	foreign.answer("a foreigner does not like it")
	one.answer("RouteConfiguration " + host("greeter") + ":8080: too many sparks")
	two.answer("no\x07 colours " + strings.Repeat("long ", 1000))
	three.answer("no\x07 colours " + strings.Repeat("long ", 1000))
	k.awaitRefused("greeter", "refused by 3 clients", "too many sparks", "(1)", "no", "colours long", "(2)")
	other.awaitRefused("consumer", "refused by 1 client of one replica, where", "a foreigner does not like it")
	k.awaitEvent("greeter", "RefusedByClients", "Warning GRPCRoute refused by", "too many sparks", "colours")
	k.awaitPolicy("wide", "refused by 3 clients")
	innocent := k.awaitRefused("reeter") // whose name is part of the other one
	k.object(strings.Replace(route("displaced", "NS", "greeter", "{name: reeter, port: 8080}"), "GRPC", "HTTP", 1))
	k.awaitConditionsOf(cluster.HTTPRoutes, "displaced", "Accepted=False/Conflicted", "ResolvedRefs=True/ResolvedRefs")

	// The route is fixed, in the eyes of one client; the others reject it again.
	k.object(strings.Replace(route("greeter", "NS", "greeter", "{name: reeter, port: 8080}"), "rules: [{", "rules: [{name: mended, ", 1))
	for i, r := range []*refuser{one, two, three} {
		r.last = r.Recv()
		r.answer([]string{"", "still no colours", "still no colours"}[i])
	}
	k.awaitRefused("greeter", "refused by 2 clients", "still no colours")
	k.awaitEvent("greeter", "RefusedByClients", "refused by 2 clients")
	// Clients that are gone refuse nothing.
	two.Cancel()
	three.Cancel()
	k.awaitRefused("greeter")
	if objects, count := k.awaitEvent("greeter", "RefusedByClients"); objects > 6 || count > 6 {
		t.Errorf("there are %d events, counted %d times, for 5 NACKs", objects, count)
	}
	other.awaitRefused("consumer", "refused by 1 client of one replica, where")
	xdstest.Equal(t, "resource version of a route that no client refuses", innocent, k.awaitRefused("reeter"))
}
