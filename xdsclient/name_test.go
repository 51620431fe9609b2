package xdsclient

import (
	"testing"

	"github.com/dynxds/dynxds/testutils"
)

// gRFC A47, "Watcher Changes": equal names are one cache entry and one
// subscription, under the canonical name; a server may answer with any spelling.
func TestEqualNamesAreOneCacheEntry(t *testing.T) {
	overSotW(t, func(t *testing.T, types *testTypes, server *script, c *XDSClient) {
		const (
			path      = "xdstp://a/envoy.config.cluster.v3.Cluster/"
			canonical = path + "x?k=1&l=2"
			other     = path + "%78?l=2&k=1"
		)
		first, second := listenBoth(t, c, types.clusters, other, canonical)
		s := server.stream()
		check(t, s.request(), want{typ: types.clusters, names: []string{canonical}, node: true})
		for i, spelling := range []string{canonical, other} {
			text := string(rune('1' + i))
			s.send(types.clusters, text, "n"+text, cluster(spelling, text))
			allHear(text, first, second)
			s.request()
		}
		s.send(types.clusters, "3", "n3", wrap(t, other, cluster(canonical, "3")))
		allHear("3", first, second)
		s.request()
		decoded := types.decoded.Load()
		s.send(types.clusters, "4", "n4", wrap(t, path+"x?l=2&k=1", cluster(canonical, "3")))
		check(t, s.request(), want{typ: types.clusters, names: []string{canonical}, version: "4", nonce: "n4"})
		first.silent()
		if types.decoded.Load() != decoded {
			t.Error("the same bytes under another spelling of the name were decoded again")
		}
		// Full state under another spelling deletes nothing; a name that is
		// none is nobody's.
		s.send(types.clusters, "5", "n5", cluster(other, "5"), cluster("xdstp://a/%zz", "5"))
		allHear("5", first, second)
		s.request()
		if n := c.Stats().Unasked; n != 1 {
			t.Errorf("%d resources were dropped, want 1", n)
		}
	}, testutils.Authority("a", "", nil))
}
