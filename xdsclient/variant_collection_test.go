package xdsclient

import (
	"fmt"
	"testing"

	"github.com/dynxds/dynxds/testutils"
)

func memberOf(name, params, text string) func(*answer) {
	return variantOf(collectionDir+name, params, text)
}

// The work for a collection grows with its members, and not with the square of the variants that one name
// has: ns/variant is about the same.
func BenchmarkVariantsOfOneMember(b *testing.B) {
	for _, n := range []int{1_000, 20_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			types := newTestTypes()
			k := newCoreWith(b, testutils.ServerFeatures("delta", "dynamic_parameter_constraints"), testutils.Authority("auth", "", nil))
			d := &desk{t: b, k: k, types: types, delta: true, asked: make(map[string]bool)}
			const name = collectionDir + "x"
			var has, lacks []func(*answer)
			for i := range n {
				shard := fmt.Sprint("shard=", i)
				has, lacks = append(has, variantOf(name, shard, "")), append(lacks, gone(name, shard))
			}
			messages := [][]byte{d.response(has...), d.response(has...), d.response(lacks...)}
			counter := new(memberCounter)
			k.c.WatchCollection(types.clusters, collectionDir+"*", counter)
			d.listens()
			rounds := 0
			for ; b.Loop(); rounds++ {
				for _, message := range messages {
					k.push(message)
					d.listens()
				}
			}
			if counter.values < n*rounds || counter.errors != n*rounds {
				b.Errorf("in %d rounds of %d variants, %d were added and %d removed", rounds, n, counter.values, counter.errors)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(rounds*n), "ns/variant")
		})
	}
}

// memberCounter counts the members that are added and removed.
type memberCounter struct{ values, errors int }

func (c *memberCounter) MemberChanged(_ Member, _ any, err error, done func()) {
	if err == nil {
		c.values++
	} else {
		c.errors++
	}
	done()
}
func (c *memberCounter) CollectionChanged(_ error, done func())      { done() }
func (c *memberCounter) AmbientError(_ Member, _ error, done func()) { done() }
