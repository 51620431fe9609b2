package store

import (
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dynxds/dynxds/internal/xdstest"
)

// What has changed is taken in only if that makes the files what the store has: after a deletion, or from another etcd, it
// would be a mixture.
func TestChangesAreWhole(t *testing.T) {
	t.Parallel()
	s, err := Open(Options{URL: "etcd://localhost:1/mesh"})
	xdstest.NoError(t, err)
	before := head{revision: 5, cluster: 1, term: 2}
	for name, test := range map[string]struct {
		changed []string
		count   int64
		now     head
		want    bool
	}{
		"nothing":                {nil, 2, head{5, 1, 2}, true},
		"other keys of etcd":     {nil, 2, head{9, 1, 3}, true},
		"a change":               {[]string{"a.yaml"}, 2, head{6, 1, 2}, true},
		"a creation":             {[]string{"c.yaml"}, 3, head{6, 1, 2}, true},
		"a key that is none":     {[]string{"notes.txt"}, 3, head{6, 1, 2}, true},
		"a deletion":             {nil, 1, head{6, 1, 2}, false},
		"one for another":        {[]string{"c.yaml"}, 2, head{6, 1, 2}, false},
		"another cluster":        {nil, 2, head{6, 2, 2}, false},
		"an older revision":      {nil, 2, head{4, 1, 2}, false},
		"an older leader's term": {nil, 2, head{6, 1, 1}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			had := &Snapshot{Documents: map[string]string{"a.yaml": "", "b.yaml": ""}, head: before}
			response := &clientv3.GetResponse{Count: test.count, Header: &etcdserverpb.ResponseHeader{
				Revision: test.now.revision, ClusterId: test.now.cluster, RaftTerm: test.now.term,
			}}
			for _, name := range test.changed {
				response.Kvs = append(response.Kvs, &mvccpb.KeyValue{Key: []byte(s.docs() + name)})
			}
			if _, got := s.with(had, response); got != test.want {
				t.Errorf("the changes complete the files: %t, want %t", got, test.want)
			}
		})
	}
}
