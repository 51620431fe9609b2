package xdsclient

import (
	"fmt"
	"testing"

	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// What a batch starts and stops goes out together, also without a response that
// would hold requests back.
func TestBatchIsOneRequestPerType(t *testing.T) {
	overSotW(t, func(t *testing.T, types *testTypes, server *script, c *XDSClient) {
		_, stop := listen(t, c, types.clusters, "before")
		s := server.stream()
		check(t, s.request(), want{typ: types.clusters, names: []string{"before"}, node: true})
		var names []string
		c.Batch(func() {
			c.Batch(func() {}) // ends within the other
			for i := range 100 {
				names = append(names, fmt.Sprintf("c%02d", i))
				listen(t, c, types.clusters, names[i])
				s.quiet()
			}
			listen(t, c, types.endpoints, "e")
			stop()
		})
		check(t, s.request(), want{typ: types.clusters, names: names})
		check(t, s.request(), want{typ: types.endpoints, names: []string{"e"}})
		s.quiet()
	})
}

// A batch that changes nothing in the end sends nothing.
func TestBatchThatChangesNothing(t *testing.T) {
	overSotW(t, func(t *testing.T, types *testTypes, server *script, c *XDSClient) {
		listen(t, c, types.clusters, "a")
		_, stop := listen(t, c, types.clusters, "b")
		s := server.asked()
		c.Batch(func() {
			stop()
			s.quiet()
			listen(t, c, types.clusters, "b")
			_, stop = listen(t, c, types.clusters, "c")
			s.quiet()
			stop()
		})
		s.quiet()
	})
}

// Without constraints a watch by locator is one by name.
func TestLocatorWithoutConstraints(t *testing.T) {
	overSotW(t, func(t *testing.T, types *testTypes, server *script, c *XDSClient) {
		e, _ := listen(t, c, types.clusters, "a")
		s := server.asked()
		s.send(types.clusters, "1", "n1", cluster("a", "text"))
		e.cluster("text")
		s.request()
		byLocator := newEar(t)
		c.WatchLocator(types.clusters, "a", dynparam.Constraints{}, byLocator)
		byLocator.cluster("text")
		s.quiet()
	})
}
