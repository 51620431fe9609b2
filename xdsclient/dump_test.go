package xdsclient

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
)

// The dump names the bootstrap, and lists what is watched and no more.
func TestDumpListsWhatIsWatched(t *testing.T) {
	overSotW(t, func(t *testing.T, types *testTypes, server *script, c *XDSClient) {
		const newStyle = "xdstp://au%2Fth/envoy.config.cluster.v3.Cluster/a"
		listen(t, c, types.endpoints, "a")
		listen(t, c, types.clusters, newStyle)
		_, stop := listen(t, c, types.clusters, "b")
		server.stream().request()
		stop()

		d := c.Dump()
		if !proto.Equal(d.Node, c.Bootstrap().Node) || d.BootstrapSource != "test" || d.BootstrapFingerprint != c.Bootstrap().Fingerprint() {
			t.Errorf("the dump is of another bootstrap: %+v", d)
		}
		var got []string
		for _, r := range d.Resources {
			got = append(got, fmt.Sprint(r.TypeURL[strings.LastIndexByte(r.TypeURL, '.')+1:], " ", r.Authority, " ", r.Name))
		}
		want := []string{"Cluster au/th " + newStyle, "ClusterLoadAssignment #old a"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	}, testutils.Authority("au/th", "passthrough:///script", nil))
}

func TestClosedClientIsEmptyAndNotListed(t *testing.T) {
	t.Parallel()
	types := newTestTypes()
	server := xdstest.StartServer(t)
	server.Set(t, cluster("a", "1"))
	c := quickClient(t, server)
	a, _ := listen(t, c, types.clusters, "a")
	a.cluster("1")
	if !slices.Contains(Clients(), c) {
		t.Error("Clients() does not have the client")
	}
	c.Close()
	if slices.Contains(Clients(), c) {
		t.Error("Clients() has the closed client")
	}
	if d := c.Dump(); len(d.Resources)+len(d.Servers) != 0 {
		t.Errorf("the closed client holds %+v", d)
	}
}

// Clients are listed the oldest first, so that dumps can be compared.
func TestClientsAreInOrder(t *testing.T) {
	t.Parallel()
	var made []*XDSClient
	for range 3 {
		c, err := New(parseBootstrap(t, "passthrough:///nowhere"))
		xdstest.NoError(t, err)
		defer c.Close()
		made = append(made, c)
	}
	got := slices.DeleteFunc(Clients(), func(c *XDSClient) bool { return !slices.Contains(made, c) })
	if !slices.Equal(got, made) {
		t.Error("Clients() are in another order than they were made")
	}
}
