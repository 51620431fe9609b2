package xdsclient

import (
	"fmt"
	"testing"

	"github.com/dynxds/dynxds/testutils"
)

func TestCollectionsOfVariants(t *testing.T) {
	runTranscripts(t, []transcriptTest{
		// TP2, "Matching Behavior and Best Practices", of glob collections: "all matching variants of the
		// resource will be used"; and "Sharding Clusters".
		{name: "all that match", over: "delta", servers: variants, steps: `
			watch low=dir/*{shard=0-4} high=dir/*{shard=3-9} one=dir/a{shard=0-9} -> stream
			    -> req +dir/*{shard=0-4} +dir/*{shard=3-9} +dir/a{shard=0-9}
			send 1 dir/a{shard=1}=a1 dir/a{shard=3}=a3 dir/a{shard=5}=a5 dir/b{shard=4}=b dir/c{shard=99}=c -> ack 1
			    -> low member a{shard=1} = a1; low member a{shard=3} = a3; low member b{shard=4} = b
			    -> low collection; high member a{shard=3} = a3; high member a{shard=5} = a5
			    -> high member b{shard=4} = b; high collection; one = a5
			send 2 dir/d=d             -> ack 2; low member d = d; high member d = d
			send 3 dir/a{shard=3}=new -> ack 3; low member a{shard=3} = new; high member a{shard=3} = new
			    -> req +dir/a{shard=0-9}
		`, then: func(x *transcript) {
			if got := x.c.Stats(); got.Unmatched != 1 || got.Decoded != 6 {
				x.t.Errorf("Stats() is %+v, want 1 unmatched and 6 decoded", got)
			}
		}},
		// A variant leaves a collection by the constraints that spell out its parameters, or all variants of a
		// name by those of the collection, or by the name alone.
		{name: "variants that leave", over: "delta", servers: variants, steps: `
			watch c=dir/*{shard=0-9}   -> stream; req +dir/*{shard=0-9}
			send 1 dir/a{shard=1}=x dir/a{shard=2}=x dir/a=x -> ack 1; c member a{shard=1} = x
			    -> c member a{shard=2} = x; c member a = x; c collection
			send 2 -dir/a{shard=1}     -> ack 2; c member a{shard=1}: does not exist
			send 3 -dir/a{}            -> ack 3; c member a: does not exist
			send 4 dir/a{shard=1}=x dir/a=x -> ack 4; c member a{shard=1} = x; c member a = x
			send 5 -dir/a{shard=0-9} -> ack 5; c member a{shard=1}: does not exist
			    -> c member a{shard=2}: does not exist; c member a: does not exist
			send 6 dir/a{shard=1}=x dir/a{shard=2}=x -> ack 6; c member a{shard=1} = x; c member a{shard=2} = x
			send 7 -dir/a -> ack 7; c member a{shard=1}: does not exist; c member a{shard=2}: does not exist
			send 8 dir/a{shard=1}=x dir/b{shard=1}=x -> ack 8; c member a{shard=1} = x; c member b{shard=1} = x
			# The collection is empty.
			send 9 -dir/*{shard=0-9} -> ack 9; c member a{shard=1}: does not exist
			    -> c member b{shard=1}: does not exist
		`},
	})
}

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
