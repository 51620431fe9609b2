package xdsclient

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/dynxds/dynxds/xdsclient/internal/ads/wire"
)

var (
	speaksSotW  []string
	speaksDelta = []string{"delta"}
)

// protocolsOfTwo are the protocols that a higher and a lower server may speak.
var protocolsOfTwo = map[string][][]string{
	"SotW, then SotW":   {speaksSotW, speaksSotW},
	"SotW, then delta":  {speaksSotW, speaksDelta},
	"delta, then SotW":  {speaksDelta, speaksSotW},
	"delta, then delta": {speaksDelta, speaksDelta},
}

// peer waits for the next stream of the protocol, and for what the client has to say
// on it.
func (s *script) peer(features []string) peer {
	s.t.Helper()
	if len(features) > 0 {
		return s.delta()
	}
	stream := s.stream()
	synctest.Wait()
	return stream
}

// gRFC A71: the way down and the way up are the same whatever each of the servers
// speaks. Bytes that the client has from the other server are not decoded again.
func TestFallbackBetweenProtocols(t *testing.T) {
	for name, features := range protocolsOfTwo {
		t.Run(name, func(t *testing.T) {
			overFleet(t, 2, func(t *testing.T, types *testTypes, f fleet) {
				c := f.clientWith(features)
				a, _ := listen(t, c, types.clusters, "a")
				high := f[0].peer(features[0])
				high.say(types.clusters, "1", clusters(cluster("a", "1")))
				a.cluster("1")
				f[0].lose(high)
				f[1].untouched()

				b, _ := listen(t, c, types.clusters, "b")
				low := f[1].peer(features[1])
				low.say(types.clusters, "7", clusters(cluster("a", "1"), cluster("b", "low")))
				b.cluster("low")
				low.say(types.clusters, "8", clusters(cluster("a", "low"), cluster("b", "low")))
				a.cluster("low")
				b.silent()

				f[0].setRefuse(nil)
				high = f[0].peer(features[0])
				high.say(types.clusters, "1", clusters(cluster("a", "1"), cluster("b", "low")))
				a.cluster("1")
				b.silent()
				synctest.Wait()
				checkServers(t, c, map[string]string{"a": uri(0), "b": uri(0)})
				f[1].opened(1)
				// Each server's a, and the lower one's b; once more if a bare resource was a
				// named one there, which is not found by its bytes.
				want := int64(3)
				if len(features[0]) < len(features[1]) {
					want++
				}
				if got := types.decoded.Load(); got != want {
					t.Errorf("%d resources were decoded, want %d", got, want)
				}
			})
		})
	}
}

// A server is told the versions that it gave, and not those that another one gave
// under the same name.
func TestInitialVersionsAreTheServersOwn(t *testing.T) {
	overFleet(t, 2, func(t *testing.T, types *testTypes, f fleet) {
		c := f.clientWith([][]string{speaksDelta, speaksDelta})
		a, b := listenBoth(t, c, types.clusters, "a", "b")
		high := f[0].delta()
		high.send(types.clusters, "n1", has("a", "1", cluster("a", "high")), has("b", "1", cluster("b", "high")))
		allHear("high", a, b)
		f[0].lose(high)
		n, _ := listen(t, c, types.clusters, "n")
		all := []string{"a", "b", "n"}
		low := f[1].delta()
		low.expect(deltaWant{typ: types.clusters, sub: all, node: true})
		low.send(types.clusters, "n1", has("a", "7", cluster("a", "low")), has("n", "7", cluster("n", "low")))
		allHear("low", a, n)
		low.breakOff()
		low = f[1].delta()
		low.expect(deltaWant{typ: types.clusters, sub: all, node: true, initial: map[string]string{"a": "7", "n": "7"}})

		// The higher server did not hear of it that the cache took over another a.
		f[0].setRefuse(nil)
		high = f[0].delta()
		high.expect(deltaWant{typ: types.clusters, sub: all, node: true})
		high.send(types.clusters, "n1", has("a", "1", cluster("a", "high")))
		a.cluster("high")
		low.gone()
		high.send(types.clusters, "n2", has("b", "1", cluster("b", "high")))
		high.breakOff()
		f[0].delta().expect(deltaWant{typ: types.clusters, sub: all, node: true, initial: map[string]string{"a": "1", "b": "1"}})
		allSilent(b, n)
	})
}

// A server that was unreachable, while all was cached, is told the versions that are
// in use, except one: its answer to that ends the unreachability.
func TestInitialVersionsAfterAnOutage(t *testing.T) {
	overFleet(t, 2, func(t *testing.T, types *testTypes, f fleet) {
		c := f.clientWith([][]string{speaksDelta, speaksDelta})
		a, b := listenBoth(t, c, types.clusters, "a", "b")
		high := f[0].delta()
		high.send(types.clusters, "n1", has("a", "1", cluster("a", "x")), has("b", "1", cluster("b", "x")))
		allHear("x", a, b)
		f[0].setRefuse(errRefused)
		high.breakOff()
		pass(10 * time.Second)
		f[0].setRefuse(nil)
		high = f[0].delta()
		high.expect(deltaWant{typ: types.clusters, sub: []string{"a", "b"}, node: true, initial: map[string]string{"a": "", "b": "1"}})
		high.send(types.clusters, "n1", has("a", "1", cluster("a", "x")))
		synctest.Wait()
		if servers := c.Dump().Servers; len(servers) != 1 || !servers[0].Connected {
			t.Errorf("the servers are %+v, want the higher one, connected", servers)
		}
		allSilent(a, b)
		f[1].untouched()
	})
}

// A server that does not implement delta is no server that is
// unreachable, wherever in the list it is. The client remembers which one it was.
func TestUnimplementedIsNoReasonToFallBack(t *testing.T) {
	for name, sotwOnly := range map[string]int{"the higher server": 0, "the lower server": 1} {
		t.Run(name, func(t *testing.T) {
			overFleet(t, 2, func(t *testing.T, types *testTypes, f fleet) {
				f[sotwOnly].sotwOnly = true
				speaks := [][]string{speaksDelta, speaksDelta}
				speaks[sotwOnly] = speaksSotW
				c := f.clientWith([][]string{speaksDelta, speaksDelta})
				a, _ := listen(t, c, types.clusters, "a")
				high := f[0].peer(speaks[0])
				f[1].untouched()
				high.say(types.clusters, "1", clusters(cluster("a", "high")))
				a.cluster("high")

				f[0].lose(high)
				b, _ := listen(t, c, types.clusters, "b")
				low := f[1].peer(speaks[1])
				low.say(types.clusters, "1", clusters(cluster("a", "low"), cluster("b", "low")))
				allHear("low", a, b)
				f[0].setRefuse(nil)
				f[0].peer(speaks[0]).say(types.clusters, "1", clusters(cluster("a", "high"), cluster("b", "high")))
				allHear("high", a, b)
				b.silent()
				synctest.Wait()
				c.mu.Lock()
				defer c.mu.Unlock()
				if _, ok := c.unimplemented[unimplemented{c.config.Servers[sotwOnly].Key(), wire.Delta{}.Method()}]; !ok || len(c.unimplemented) != 1 {
					t.Errorf("the client remembers %v, want %s", c.unimplemented, uri(sotwOnly))
				}
			})
		})
	}
}

// gRFC A71 and xRFC TP3: that a resource does not exist, or not for this client, is
// as good as cached. Any other error is not, unless there is a version in use.
func TestServerErrorsAndWhatIsCached(t *testing.T) {
	for code, final := range map[codes.Code]bool{
		codes.NotFound: true, codes.PermissionDenied: true,
		codes.Unavailable: false, codes.Internal: false,
	} {
		for _, inUse := range []bool{false, true} {
			for _, features := range [][]string{speaksSotW, speaksDelta} {
				t.Run(fmt.Sprint(code, " ", inUse, " ", features), func(t *testing.T) {
					overFleet(t, 2, func(t *testing.T, types *testTypes, f fleet) {
						c := f.clientWith([][]string{features, speaksDelta})
						a, _ := listen(t, c, types.clusters, "a")
						kind := KindServer
						if code == codes.NotFound {
							kind = KindDoesNotExist
						}
						s := f[0].peer(features)
						if inUse {
							s.say(types.clusters, "1", clusters(cluster("a", "x")))
							a.cluster("x")
						}
						s.say(types.clusters, "2", nil, resourceError("a", code, "no"))
						if inUse {
							a.ambient(kind)
						} else {
							a.fault(kind)
						}
						f[0].setRefuse(errRefused)
						s.breakOff()
						if final || inUse {
							pass(time.Minute)
							f[1].untouched()
							a.silent()
							return
						}
						f[1].delta().say(types.clusters, "1", clusters(cluster("a", "low")))
						a.cluster("low")
					})
				})
			}
		}
	}
}

// What a server said last of a resource holds for a watch that starts before the
// server was told that the last one stopped, the error beside the version included.
func TestLastAnswerOutlivesTheWatch(t *testing.T) {
	overEachProtocol(t, nil, func(v *protocolTest) {
		a, stop := listen(v.t, v.c, v.types.clusters, "a")
		blocker := newEar(v.t)
		blocker.keepDone = true
		v.c.Watch(v.types.clusters, "b", blocker)
		s := v.connect()
		s.say(v.types.clusters, "1", clusters(cluster("a", "x")))
		a.cluster("x")
		s.say(v.types.clusters, "2", clusters(cluster("b", "x")), resourceError("a", codes.Internal, "no"))
		a.ambient(KindServer)
		stop() // the server is not told before blocker is done
		late := v.listen("a")
		late.cluster("x")
		late.ambient(KindServer)
		late.silent()
	})
}
