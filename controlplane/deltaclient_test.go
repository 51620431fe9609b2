package controlplane_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoverypb "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/google/go-cmp/cmp"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/dynxds/dynxds/controlplane"
)

type (
	deltaRequest  = discoverypb.DeltaDiscoveryRequest
	deltaResponse = discoverypb.DeltaDiscoveryResponse
)

// deltaClient is a delta ADS client that does only what it is told to.
type deltaClient struct {
	t      testing.TB
	stream discoverypb.AggregatedDiscoveryService_DeltaAggregatedResourcesClient
	store  *controlplane.Store
	fences int
	cancel context.CancelFunc
}

func (s *testServer) openDelta(t testing.TB) *deltaClient {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	stream, err := discoverypb.NewAggregatedDiscoveryServiceClient(s.conn).DeltaAggregatedResources(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return &deltaClient{t: t, stream: stream, store: s.store, cancel: cancel}
}

func (c *deltaClient) send(req *deltaRequest) {
	c.t.Helper()
	if err := c.stream.Send(req); err != nil {
		c.t.Fatalf("Send: %v", err)
	}
}

func (c *deltaClient) subscribe(typeURL string, names ...string) {
	c.t.Helper()
	c.send(&deltaRequest{Node: &corepb.Node{Id: "node"}, TypeUrl: typeURL, ResourceNamesSubscribe: names})
}

func (c *deltaClient) unsubscribe(typeURL string, names ...string) {
	c.t.Helper()
	c.send(&deltaRequest{TypeUrl: typeURL, ResourceNamesUnsubscribe: names})
}

// resume is the first request for a type on a new stream of a client that has
// resources from before.
func (c *deltaClient) resume(typeURL string, versions map[string]string, names ...string) {
	c.t.Helper()
	c.send(&deltaRequest{TypeUrl: typeURL, ResourceNamesSubscribe: names, InitialResourceVersions: versions})
}

func (c *deltaClient) ack(resp *deltaResponse) {
	c.t.Helper()
	c.send(&deltaRequest{TypeUrl: resp.GetTypeUrl(), ResponseNonce: resp.GetNonce()})
}

func (c *deltaClient) nack(resp *deltaResponse, message string) {
	c.t.Helper()
	c.send(&deltaRequest{
		TypeUrl: resp.GetTypeUrl(), ResponseNonce: resp.GetNonce(),
		ErrorDetail: &statuspb.Status{Code: int32(codes.InvalidArgument), Message: message},
	})
}

func (c *deltaClient) recv() *deltaResponse {
	c.t.Helper()
	resp, err := c.stream.Recv()
	if err != nil {
		c.t.Fatalf("Recv: %v", err)
	}
	return resp
}

// want receives a response and compares its type and content: "a" is a
// resource, "-a" a removed one, "!a" an error.
func (c *deltaClient) want(typeURL string, content ...string) *deltaResponse {
	c.t.Helper()
	resp := c.recv()
	if resp.GetTypeUrl() != typeURL {
		c.t.Fatalf("got a response of type %s with %q, want type %s with %q", resp.GetTypeUrl(), contentOf(resp), typeURL, content)
	}
	slices.Sort(content)
	if diff := cmp.Diff(content, contentOf(resp)); diff != "" {
		c.t.Fatalf("content of the %s response (-want +got):\n%s", typeURL, diff)
	}
	return resp
}

func contentOf(resp *deltaResponse) []string {
	var content []string
	for _, r := range resp.GetResources() {
		content = append(content, r.GetName())
	}
	for _, name := range resp.GetRemovedResources() {
		content = append(content, "-"+name)
	}
	content = append(content, errorNames(resp.GetResourceErrors())...)
	slices.Sort(content)
	return content
}

func errorNames(errs []*discoverypb.ResourceError) []string {
	var names []string
	for _, e := range errs {
		names = append(names, "!"+e.GetResourceName().GetName())
	}
	return names
}

// fence proves that nothing is due: it asks for a resource of a type that is
// pushed after all others, and expects its response to be the next.
func (c *deltaClient) fence() {
	c.t.Helper()
	c.fences++
	name := fmt.Sprintf("fence-%p-%d", c, c.fences)
	if _, err := c.store.Update(func(tx *controlplane.Tx) { tx.SetNamed(name, wrapperspb.String(name)) }); err != nil {
		c.t.Fatal(err)
	}
	c.subscribe(custom, name)
	c.ack(c.want(custom, name))
}

// end waits for the stream's status.
func (c *deltaClient) end() error {
	c.t.Helper()
	for {
		if _, err := c.stream.Recv(); err != nil {
			return err
		}
	}
}

// typeStatus returns the server's view of a type once it has taken in all
// requests so far.
func (c *deltaClient) typeStatus(control *controlplane.Server, typeURL string) controlplane.TypeStatus {
	c.t.Helper()
	c.fence()
	return statusOf(c.t, control, typeURL)
}

// versionsOf is what a client that took in the responses has.
func versionsOf(responses ...*deltaResponse) map[string]string {
	versions := map[string]string{}
	for _, resp := range responses {
		for _, r := range resp.GetResources() {
			versions[r.GetName()] = r.GetVersion()
		}
	}
	return versions
}
