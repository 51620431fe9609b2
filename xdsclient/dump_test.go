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
	const newStyle = "xdstp://au%2Fth/envoy.config.cluster.v3.Cluster/a"
	(&transcriptTest{over: "SotW", steps: "hold\nwatch e:a b one=" + newStyle + "\nstop b", then: func(x *transcript) {
		d := x.c.Dump()
		if b := x.c.Bootstrap(); !proto.Equal(d.Node, b.Node) || d.BootstrapSource != "test" || d.BootstrapFingerprint != b.Fingerprint() {
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
	}, authorities: []testutils.BootstrapOption{testutils.Authority("au/th", "", nil)}}).run(t)
}

// Clients are listed the oldest first, so that dumps can be compared, until they are closed.
func TestClientsAreInOrder(t *testing.T) {
	t.Parallel()
	var made []*XDSClient
	for range 3 {
		c, err := New(parseBootstrap(t, "passthrough:///nowhere"), Options{})
		xdstest.NoError(t, err)
		defer c.Close()
		made = append(made, c)
	}
	got := slices.DeleteFunc(Clients(), func(c *XDSClient) bool { return !slices.Contains(made, c) })
	if !slices.Equal(got, made) {
		t.Error("Clients() are in another order than they were made")
	}
	if made[1].Close(); slices.Contains(Clients(), made[1]) {
		t.Error("Clients() has a closed client")
	}
}
