package headeredit_test

import (
	"strings"
	"testing"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/dynxds/dynxds/internal/headeredit"
)

func option(name, value string, action corepb.HeaderValueOption_HeaderAppendAction) *corepb.HeaderValueOption {
	return &corepb.HeaderValueOption{Header: &corepb.HeaderValue{Key: name, Value: value}, AppendAction: action}
}

// HeaderValueOption.append_action, and the deprecated append.
func TestAppendActions(t *testing.T) {
	t.Parallel()
	old := option("k", "new", 0)
	//lint:ignore SA1019 Control planes still send it.
	old.Append = wrapperspb.Bool(false)
	empty := option("k", "", corepb.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD)
	empty.KeepEmptyValue = true
	for _, test := range []struct {
		name            string
		option          *corepb.HeaderValueOption
		present, absent []string
	}{
		{"APPEND_IF_EXISTS_OR_ADD", option("K", "new", corepb.HeaderValueOption_APPEND_IF_EXISTS_OR_ADD), []string{"old", "new"}, []string{"new"}},
		{"ADD_IF_ABSENT", option("K", "new", corepb.HeaderValueOption_ADD_IF_ABSENT), []string{"old"}, []string{"new"}},
		{"OVERWRITE_IF_EXISTS_OR_ADD", option("K", "new", corepb.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD), []string{"new"}, []string{"new"}},
		{"OVERWRITE_IF_EXISTS", option("K", "new", corepb.HeaderValueOption_OVERWRITE_IF_EXISTS), []string{"new"}, nil},
		{"append: false", old, []string{"new"}, []string{"new"}},
		{"keep_empty_value", empty, []string{""}, []string{""}},
		{"percent signs", option("k", "100%%", corepb.HeaderValueOption_APPEND_IF_EXISTS_OR_ADD), []string{"old", "100%"}, []string{"100%"}},
	} {
		edits, ignored := headeredit.FromOptions(headeredit.Request, []*corepb.HeaderValueOption{test.option})
		if len(ignored) > 0 {
			t.Errorf("%s: %v", test.name, ignored)
			continue
		}
		original := metadata.MD{"k": {"old"}}
		md := metadata.MD{"k": original["k"]}
		edits.Apply(md)
		if diff := cmp.Diff(test.present, md["k"]); diff != "" {
			t.Errorf("%s, present (-want +got):\n%s", test.name, diff)
		}
		if original["k"][0] != "old" {
			t.Errorf("%s changed the values in place", test.name)
		}
		md = metadata.MD{}
		edits.Apply(md)
		if diff := cmp.Diff(test.absent, md["k"]); diff != "" {
			t.Errorf("%s, absent (-want +got):\n%s", test.name, diff)
		}
	}
}

// Envoy rejects such an option; it is not clear what it asks for.
func TestAppendBesideAppendAction(t *testing.T) {
	t.Parallel()
	for _, old := range []bool{true, false} {
		o := option("k", "v", corepb.HeaderValueOption_ADD_IF_ABSENT)
		//lint:ignore SA1019 Control planes still send it.
		o.Append = wrapperspb.Bool(old)
		if _, err := headeredit.FromOption(headeredit.Request, o); err == nil || err.Error() != `header "k": append and append_action are both set` {
			t.Errorf("append: %v: error = %v", old, err)
		}
	}
}

func TestEditsThatGRPCCannotCarryOut(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		side        headeredit.Side
		name, value string
		why         string
	}{
		{headeredit.Request, "", "v", "needs a name"},
		{headeredit.Request, ":path", "v", "pseudo"},
		{headeredit.Request, "Host", "v", "pseudo"},
		{headeredit.Response, "grpc-status", "0", "protocol"},
		{headeredit.Request, "content-type", "v", "fills this header in"},
		{headeredit.Request, "a b", "v", "character in the name"},
		{headeredit.Request, "k", "%REQ(x)%", "command operators"},
		{headeredit.Request, "k", "ü", "character in the value"},
		{headeredit.Request, "k-bin", "?", "base64"},
		{headeredit.Request, "k", "", "empty"},
	} {
		_, err := headeredit.FromOption(test.side, option(test.name, test.value, 0))
		if err == nil || !strings.Contains(err.Error(), test.why) {
			t.Errorf("%q: %q: %v, want %q", test.name, test.value, err, test.why)
		}
	}
	if _, err := headeredit.FromOption(headeredit.Response, option("content-type", "v", 0)); err != nil {
		t.Errorf("content-type of a response: %v", err)
	}
	edit, err := headeredit.FromOption(headeredit.Request, option("k-bin", "AP8=", 0))
	if err != nil {
		t.Fatal(err)
	}
	md := metadata.MD{}
	edit.Apply(md)
	if md["k-bin"][0] != "\x00\xff" {
		t.Errorf("k-bin is %q", md["k-bin"])
	}
}

func TestRemove(t *testing.T) {
	t.Parallel()
	md := metadata.MD{"k": {"v"}, "l": {"v"}}
	headeredit.Edits{headeredit.Remove("k"), headeredit.Remove("m")}.Apply(md)
	if diff := cmp.Diff(metadata.MD{"l": {"v"}}, md); diff != "" {
		t.Error(diff)
	}
}
