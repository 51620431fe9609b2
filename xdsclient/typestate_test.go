package xdsclient

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dynxds/dynxds/xdsclient/internal/ads/wire"
)

// subscribedTo makes a type subscribe to a resource, as a watch does.
func subscribedTo(ts *typeState, name string) {
	ts.add(&resource{key: resourceKey{name: name}, watches: []*watch{{}}})
}

// due returns the requests of a type that are due, as version, nonce and names.
func due(ts *typeState) (requests [][]string) {
	for {
		r, _ := ts.next(false)
		if r == nil {
			return requests
		}
		requests = append(requests, append([]string{r.Version, r.Nonce}, r.All.Names...))
	}
}

// Envoy, xDS protocol, "Resource updates": a request is an ACK and a
// subscription at once. go-control-plane takes a resource for known that it has
// sent and the next request names, so an ACK that named a resource which the
// response had too early would mean never to get it.
func TestAnAnswerDoesNotNameWhatTheResponseHadTooEarly(t *testing.T) {
	for _, test := range []struct {
		name    string
		unasked bool
		want    [][]string
	}{
		{"a response with a resource that nobody watched", true, [][]string{{"1", "n1", "a"}, {"1", "n1", "a", "b"}}},
		{"a response with none", false, [][]string{{"1", "n1", "a", "b"}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			ts := newTypeState(newTestTypes().clusters, nil, wire.Dialect{})
			subscribedTo(ts, "a")
			if diff := cmp.Diff([][]string{{"", "", "a"}}, due(ts)); diff != "" {
				t.Fatalf("first requests (-want +got):\n%s", diff)
			}
			ts.version, ts.relist = "1", test.unasked
			ts.reply(reply{nonce: "n1"})
			subscribedTo(ts, "b")
			if diff := cmp.Diff(test.want, due(ts)); diff != "" {
				t.Errorf("requests after the response (-want +got):\n%s", diff)
			}
		})
	}
}
