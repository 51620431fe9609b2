package csds

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	adminv3 "github.com/envoyproxy/go-control-plane/envoy/admin/v3"
	statusv3 "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/xdsclient"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// gRFC A88, "Cache Entry States, CSDS, and XdsClient Metrics": "Those states map
// directly to the states in the CSDS ClientResourceStatus enum."
func TestStatesHaveTheNamesOfCSDS(t *testing.T) {
	t.Parallel()
	// Every state of CSDS but UNKNOWN has one of ours.
	states := []xdsclient.CacheState{
		xdsclient.StateRequested, xdsclient.StateDoesNotExist, xdsclient.StateACKed,
		xdsclient.StateNACKed, xdsclient.StateReceivedError, xdsclient.StateTimeout,
	}
	for number, name := range adminv3.ClientResourceStatus_name {
		if number == int32(adminv3.ClientResourceStatus_UNKNOWN) {
			continue
		}
		state := xdsclient.CacheState(name)
		if got := clientStatus(state); !slices.Contains(states, state) || int32(got) != number {
			t.Errorf("%v became %v", state, got)
		}
	}
	xdstest.Equal(t, "no state", adminv3.ClientResourceStatus_UNKNOWN, clientStatus(""))
}

// xRFC TP2: a name that is watched with several constraints has an entry for each, and
// a collection one for each variant of a member. The name says which, unless there are none.
func TestNamesOfVariants(t *testing.T) {
	t.Parallel()
	shards, err := dynparam.New(dynparam.Require("shard", dynparam.InRanges(dynparam.AtMost(2))))
	xdstest.NoError(t, err)
	one, err := dynparam.NewParameters(map[string]string{"shard": "1"})
	xdstest.NoError(t, err)
	for want, r := range map[string]xdsclient.ResourceDump{
		"a":                    {Name: "a", Parameters: one},
		"a {shard in [0-2]}":   {Name: "a", Constraints: shards, Parameters: one},
		"c/* {shard in [0-2]}": {Name: "c/*", Constraints: shards},
		"c/m":                  {Name: "c/m", Constraints: shards, Member: true},
		"c/m {shard=1}":        {Name: "c/m", Constraints: shards, Parameters: one, Member: true},
	} {
		xdstest.Equal(t, "name", want, entryName(&r))
	}
}

// A server's text that is not UTF-8 does not cost the answer.
func TestTextOfAServerIsMadeValid(t *testing.T) {
	t.Parallel()
	at := time.Unix(1000, 7)
	fault := &xdsclient.Error{Kind: xdsclient.KindServer, TypeName: "Cluster", Resource: "a", Err: errors.New("\xff")}
	got := resourceConfig(&xdsclient.ResourceDump{
		TypeURL: "type.googleapis.com/t", Name: "a", State: xdsclient.StateReceivedError,
		Failure: &xdsclient.Failure{Version: "v\xff", Time: at, Err: fault},
	}, true)
	want := &statusv3.ClientConfig_GenericXdsConfig{
		TypeUrl: "type.googleapis.com/t", Name: "a", ClientStatus: adminv3.ClientResourceStatus_RECEIVED_ERROR,
		ErrorState: &adminv3.UpdateFailureState{
			VersionInfo: "v\uFFFD", LastUpdateAttempt: timestamppb.New(at),
			Details: `xDS Cluster "a": error OK from the management server: ` + "\uFFFD" + `; the control plane knows why`,
		},
	}
	xdstest.Equal(t, "the entry", want, got, protocmp.Transform())
	if _, err := proto.Marshal(got); err != nil {
		t.Error(err)
	}
}

// A version of megabytes, which no client needs, would make the answer larger than clients of CSDS take.
func TestLongVersionsAreCut(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("v", 5_000_000)
	got := resourceConfig(&xdsclient.ResourceDump{
		TypeURL: "type.googleapis.com/t", Name: "a", State: xdsclient.StateNACKed,
		Failure: &xdsclient.Failure{Version: long, Err: &xdsclient.Error{Err: errors.New("why")}},
	}, false)
	for _, v := range []string{version(long), got.GetErrorState().GetVersionInfo()} {
		if len(v) > 2000 || !strings.HasPrefix(v, "vvv") || !strings.Contains(v, "5000000 bytes") {
			t.Errorf("a version has %d bytes: %.100q", len(v), v)
		}
	}
}
