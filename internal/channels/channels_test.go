package channels_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/dynxds/dynxds/internal/changes"
	"github.com/dynxds/dynxds/internal/channels"
	"github.com/dynxds/dynxds/internal/inspect"
)

// source describes a channel with one cluster, of its own name.
type source string

func (s source) Config() inspect.Config { return inspect.Config{Clusters: 1} }
func (s source) ClusterNames() []string { return []string{string(s)} }
func (s source) Cluster(_ context.Context, name string) (inspect.Cluster, bool) {
	return inspect.Cluster{Name: name}, name == string(s)
}

func open(t *testing.T) *grpc.ClientConn {
	t.Helper()
	cc, err := grpc.NewClient("passthrough:///"+t.Name(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cc.Close() })
	return cc
}

// described returns the description of the test's channel, and whether there is one.
func described(t *testing.T) (inspect.Channel, bool) {
	all := channels.Inspect()
	i := slices.IndexFunc(all, func(c inspect.Channel) bool { return c.Target == "passthrough:///"+t.Name() })
	if i < 0 {
		return inspect.Channel{}, false
	}
	return all[i], true
}

func TestInspectAsksTheLatestSource(t *testing.T) {
	cc := open(t)
	r := channels.RecordOf(cc)
	if c, ok := described(t); !ok || c.Config != nil || !strings.Contains(c.Why, "is idle") || c.State != inspect.Idle || c.Mode != "undecided" {
		t.Errorf("without a source the channel is %+v (known %v)", c, ok)
	}
	removeOld := r.SetSource(source("old"))
	removeNew := r.SetSource(source("new"))
	removeOld() // The resolver from before an idle period may be closed after the next one has started.
	c, _ := described(t)
	if c.Config == nil || c.Why != "" || !slices.Equal(c.Source.ClusterNames(), []string{"new"}) {
		t.Errorf("with a source the channel is %+v", c)
	}
	if d, ok := c.Source.Cluster(context.Background(), "new"); !ok || d.Name != "new" {
		t.Errorf("the cluster is %+v (known %v)", d, ok)
	}
	removeNew()
	if c, _ = described(t); c.Config != nil || c.Source != nil {
		t.Errorf("afterwards the channel is %+v", c)
	}
	cc.Close()
	if _, ok := described(t); ok {
		t.Error("a closed channel is described")
	}
}

func TestModesAreRecordedAsChanges(t *testing.T) {
	r := channels.RecordOf(open(t))
	r.SetMode(channels.DNS, "no control plane")
	r.SetMode(channels.DNS, "the same again")
	r.SetMode(channels.XDS, "there is one")
	all := changes.Recent()
	want := []changes.Change{
		{Kind: changes.ModeChanged, Target: "passthrough:///" + t.Name(), From: "DNS", To: "xDS", Detail: "there is one"},
		{Kind: changes.ModeChanged, Target: "passthrough:///" + t.Name(), From: "undecided", To: "DNS", Detail: "no control plane"},
	}
	for i, w := range want {
		got := all[i]
		got.Number, got.Time = 0, w.Time
		if got != w {
			t.Errorf("change %d is %+v, want %+v", i, got, w)
		}
	}
}
