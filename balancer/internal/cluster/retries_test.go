package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/balancer/base"

	"github.com/dynxds/dynxds/balancer/internal/lbtest"
	"github.com/dynxds/dynxds/internal/decision"
	"github.com/dynxds/dynxds/internal/xdstest"
)

// borrowing is a policy that picks the endpoints in turn, in the order of their addresses, and
// counts the picks that were not given back.
const borrowing = "dynxds_test_borrowing"

// lent counts for an RPC; a context value of its attempts. Picks after the last one fail, unless that is 0.
type lent struct{ picks, given, last int }

var errLent = errors.New("all are lent")

type lentKey struct{}

func init() {
	balancer.Register(base.NewBalancerBuilder(borrowing, borrowingBuilder{}, base.Config{}))
}

type borrowingBuilder struct{}

func (borrowingBuilder) Build(info base.PickerBuildInfo) balancer.Picker {
	p := new(borrowingPicker)
	for _, addr := range []string{"a:1", "b:1", "c:1"} {
		for sc, i := range info.ReadySCs {
			if i.Address.Addr == addr {
				p.conns = append(p.conns, sc)
			}
		}
	}
	return p
}

type borrowingPicker struct{ conns []balancer.SubConn }

func (p *borrowingPicker) Pick(info balancer.PickInfo) (balancer.PickResult, error) {
	l, _ := info.Ctx.Value(lentKey{}).(*lent)
	if l == nil {
		return balancer.PickResult{SubConn: p.conns[0]}, nil
	}
	if l.last > 0 && l.picks == l.last {
		return balancer.PickResult{}, errLent
	}
	sc := p.conns[l.picks%len(p.conns)]
	l.picks++
	return balancer.PickResult{SubConn: sc, Done: func(balancer.DoneInfo) { l.given++ }}, nil
}

// TestRetriesAvoidPreviousHosts: Envoy, RetryPolicy.retry_host_predicate, previous_hosts: "If any of
// the predicates reject the host, host selection will be reattempted";
// host_selection_retry_max_attempts: "The maximum number of times host selection will be
// reattempted before giving up, at which point the host that was last selected will be routed to".
// Picks that are thrown away are given back to the policy.
func TestRetriesAvoidPreviousHosts(t *testing.T) {
	for _, tc := range []struct {
		name      string
		addresses []string
		attempts  []int // the picks before each attempt
		repeat    int   // host_selection_retry_max_attempts
		want      string
		discarded int
		last      int // the number of picks that succeed, if not 0
	}{
		{"the next one is another", []string{"a:1", "b:1", "c:1"}, []int{0, 1, 2}, 3, "a:1 b:1 c:1", 0, 0},
		{"the same one first", []string{"a:1", "b:1", "c:1"}, []int{0, 0, 0}, 3, "a:1 b:1 c:1", 3, 0},
		{"one more pick does not suffice", []string{"a:1", "b:1", "c:1"}, []int{0, 0, 0}, 1, "a:1 b:1 b:1", 2, 0},
		{"there is no other", []string{"a:1"}, []int{0, 0}, 4, "a:1 a:1", 4, 0},
		{"not asked for", []string{"a:1", "b:1"}, []int{0, 0}, 0, "a:1 a:1", 0, 0},
		{"none can be had any more", []string{"a:1", "b:1"}, []int{0, 0}, 3, "a:1 a:1", 0, 1},
		{"none can be had", []string{"a:1", "b:1"}, []int{0, 1}, 3, "a:1 all are lent", 0, 1},
	} {
		t.Run(tc.name, subtest(func(t *testing.T, f *fixture) {
			c := limited(t.Name(), 1)
			c.Cluster.LBPolicy, c.Endpoints = borrowing, endpoints(at("a", 0, tc.addresses...))
			f.update(c)
			f.CC.Pick(&decision.Decision{Context: context.Background()})
			synctest.Wait()
			hosts := &decision.Hosts{Picks: tc.repeat}
			var got []string
			picks, given, sent := 0, 0, 0
			for i, before := range tc.attempts {
				l := &lent{picks: before, last: tc.last}
				ctx := context.WithValue(context.Background(), lentKey{}, l)
				d := &decision.Decision{Context: ctx, Extra: &decision.Extra{Retry: i > 0, Hosts: hosts}}
				result, err := f.CC.State().Picker.Pick(balancer.PickInfo{Ctx: d})
				if err != nil && strings.HasSuffix(err.Error(), errLent.Error()) {
					got = append(got, errLent.Error())
					continue
				}
				xdstest.NoError(t, err)
				got = append(got, lbtest.Picked(result).Addr)
				sent++
				picks, given = picks+l.picks-before, given+l.given
				result.Done(balancer.DoneInfo{})
			}
			if s := fmt.Sprint(got); s != "["+tc.want+"]" {
				t.Errorf("attempts went to %v, want %s", s, tc.want)
			}
			if picks != sent+tc.discarded || given != tc.discarded {
				t.Errorf("%d picks for %d attempts, %d of them given back, want %d", picks, sent, given, tc.discarded)
			}
		}))
	}
}
