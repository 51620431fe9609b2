package outlier_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/balancer/internal/lbtest"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/internal/xdstest/golden"
)

// TestScripts carries out the scripts of testdata, each line of which is a step and, behind "->", which endpoints are ejected after it and
// what was counted, see counts. Run with -update to write what is the case now. Endpoints are numbers, and have a connection each. The steps are:
//
//	config KEY=VALUE ...   settings, see set, in place of those before; they take effect with the next endpoints
//	use 0 1-3              the endpoints that are in use, in place of all; likewise
//	endpoints 0-3 4+5 6!   the endpoints; one has two addresses, one is UNHEALTHY
//	rpcs 9x100/0 50/50     RPCs on the connections in their order: so many succeed, and so many fail
//	ends 0 4xINTERNAL OK   RPCs on a connection end one after the other: with a status of the server's; "lost:" before it says that there was no
//	                       answer; "again" that gRPC picks again, and "unsent" that the client could not send it
//	wait DURATION
//	close
func TestScripts(t *testing.T) {
	golden.Scripts(t, "testdata/*.txt", 36, func(t testing.TB) func(string) string { return (&script{fixture: newFixture(t, 16)}).step })
}

type script struct {
	*fixture
	config *xdsresource.OutlierDetection
	used   map[string]bool
	before []int            // that were ejected after the last step
	seen   map[string]int64 // what was counted until then
}

func (s *script) step(step string) string {
	s.t.Helper()
	verb, rest, _ := strings.Cut(step, " ")
	words := strings.Fields(rest)
	switch verb {
	case "config":
		s.config = nil
		for _, word := range words {
			s.set(word)
		}
		return ""
	case "use":
		s.used = make(map[string]bool)
		for _, e := range s.endpoints(words) {
			s.used[e.Address] = true
		}
		return ""
	case "endpoints":
		s.fixture.use(s.config, []xdsresource.Locality{{Endpoints: s.endpoints(words)}}, s.used)
	case "rpcs":
		i := 0
		for _, word := range words {
			n, calls := s.repeated(word)
			succeeded, failed, _ := strings.Cut(calls, "/")
			for range n {
				s.rpcs(i, s.number(succeeded), s.number(failed))
				i++
			}
		}
		return ""
	case "ends":
		for _, word := range words[1:] {
			n, ending := s.repeated(word)
			for range n {
				s.conns[s.number(words[0])].Count(s.info(ending))
			}
		}
	case "wait":
		d, err := time.ParseDuration(rest)
		xdstest.NoError(s.t, err)
		time.Sleep(d)
	case "close":
		s.loop.Do(s.detector.Close)
	default:
		s.t.Fatalf("unknown step %q", step)
	}
	return s.outcome()
}

// outcome lists the ejected endpoints, and what was counted since the last step. The connections of those whose ejection has begun or ended are
// notified once.
func (s *script) outcome() string {
	ejected := s.ejected()
	for i, c := range s.conns {
		if n := c.Health.Swap(0); (n > 0) != (slices.Contains(ejected, i) != slices.Contains(s.before, i)) || n > 1 {
			s.t.Errorf("connection %d was notified %d times", i, n)
		}
	}
	s.before = ejected
	after := fmt.Sprint(ejected)
	counts := s.cc.Meter.Counts("grpc.lb.outlier_detection.")
	var more []string
	for text, n := range counts {
		if n -= s.seen[text]; n > 0 {
			for _, words := range [][2]string{{"grpc.lb.outlier_detection.ejections_", ""}, {" grpc.target=xds:///service", ""},
				{" grpc.lb.outlier_detection.detection_method=", " "}, {" grpc.lb.outlier_detection.unenforced_reason=", " "}, {" grpc.lb.backend_service=backend", ""}} {
				text = strings.Replace(text, words[0], words[1], 1)
			}
			more = append(more, fmt.Sprint(", ", text, " ", n))
		}
	}
	slices.Sort(more)
	s.seen = counts
	return after + strings.Join(more, "")
}

func (s *script) number(text string) int {
	n, err := strconv.Atoi(text)
	xdstest.NoError(s.t, err)
	return n
}

// repeated splits NxTEXT.
func (s *script) repeated(text string) (int, string) {
	if n, rest, ok := strings.Cut(text, "x"); ok {
		return s.number(n), rest
	}
	return 1, text
}

func (s *script) info(text string) balancer.DoneInfo {
	switch text {
	case "OK":
		return balancer.DoneInfo{BytesReceived: true}
	case "again":
		return balancer.DoneInfo{}
	case "unsent":
		return balancer.DoneInfo{Err: errors.New("marshal")}
	}
	name, lost := strings.CutPrefix(text, "lost:")
	var code codes.Code
	xdstest.NoError(s.t, code.UnmarshalJSON([]byte(strconv.Quote(name))))
	if lost {
		return unanswered(code)
	}
	return answered(code)
}

// endpoints returns the endpoints of the words.
func (s *script) endpoints(words []string) (all []xdsresource.Endpoint) {
	for _, word := range words {
		word, sick := strings.CutSuffix(word, "!")
		if first, last, ok := strings.Cut(word, "-"); ok {
			for i := s.number(first); i <= s.number(last); i++ {
				all = append(all, xdsresource.Endpoint{Address: fmt.Sprint(i)})
			}
			continue
		}
		addresses := strings.Split(word, "+")
		e := xdsresource.Endpoint{Address: addresses[0], Additional: addresses[1:]}
		if sick {
			e.Health = xdsresource.HealthUnhealthy
		}
		all = append(all, e)
	}
	return all
}

// set changes a setting: success and failure, each with some of hosts, volume, enforced, and stdev or threshold; 5xx, gateway and local, which are
// numbers of failures in a row; split, max-percent, base and jitter.
func (s *script) set(setting string) {
	if s.config == nil {
		s.config = base()
	}
	key, value, _ := strings.Cut(setting, "=")
	of := map[string]*uint32{"max-percent": &s.config.MaxEjectionPercent}
	inARow := func() *xdsresource.ConsecutiveEjection {
		return &xdsresource.ConsecutiveEjection{Failures: uint32(s.number(value)), EnforcementPercentage: 100}
	}
	switch key {
	case "success":
		c := successRate().SuccessRate
		s.config.SuccessRate = c
		of = map[string]*uint32{"hosts": &c.MinimumHosts, "volume": &c.RequestVolume, "enforced": &c.EnforcementPercentage, "stdev": &c.StdevFactor}
	case "failure":
		c := failurePercentage().FailurePercentage
		s.config.FailurePercentage = c
		of = map[string]*uint32{"hosts": &c.MinimumHosts, "volume": &c.RequestVolume, "enforced": &c.EnforcementPercentage, "threshold": &c.Threshold}
	case "5xx":
		s.config.Consecutive5xx = inARow()
		return
	case "gateway":
		s.config.ConsecutiveGatewayFailure = inARow()
		return
	case "local":
		s.config.SplitLocalOriginErrors, s.config.ConsecutiveLocalOriginFailure = true, inARow()
		return
	case "max-percent":
		value = key + ":" + value
	case "base": // in nanoseconds
		s.config.BaseEjectionTime = time.Duration(s.number(value))
		s.config.MaxEjectionTime = s.config.BaseEjectionTime
		return
	case "for-ever":
		s.config.MaxEjectionTimeJitter, s.config.BaseEjectionTime = math.MaxInt64, math.MaxInt64
		return
	default:
		s.t.Fatalf("unknown setting %q", key)
	}
	for _, one := range strings.FieldsFunc(value, func(r rune) bool { return r == ',' }) {
		name, n, _ := strings.Cut(one, ":")
		if of[name] == nil {
			s.t.Fatalf("unknown setting %q of %s", name, key)
		}
		*of[name] = uint32(s.number(n))
	}
}

// A connection that is made later knows that its endpoint is ejected.
func TestLaterConnectionsAreEjected(t *testing.T) {
	test(t, 6, func(f *fixture) {
		f.use(failurePercentage(), numbered(6), nil)
		for i := range 6 {
			f.rpcs(i, 100*min(i, 1), 100*(1-min(i, 1)))
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		xdstest.Equal(f.t, "ejected", true, lbtest.NewUser(f.registry, connectivity.Ready, "0").Ejected())
	})
}

func answered(c codes.Code) balancer.DoneInfo {
	return balancer.DoneInfo{Err: status.Error(c, "no"), BytesSent: true, BytesReceived: true}
}

func unanswered(c codes.Code) balancer.DoneInfo {
	return balancer.DoneInfo{Err: status.Error(c, "no"), BytesSent: true}
}
