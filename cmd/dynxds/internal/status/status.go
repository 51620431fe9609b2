// Package status asks a process by the Client Status Discovery Service (gRFC A40) what its xDS clients
// hold. It prints the resources, and the fields of these that dynxds ignores, and it explains RPCs by
// them.
//
// It fetches once and does not watch. It works with any gRPC process that has the service.
package status

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"

	statuspb "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"

	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/xdsclient"
)

// Show fetches the status at a gRPC target, without encryption, and prints it to out. The error names
// the target.
func Show(ctx context.Context, target string, out io.Writer) error {
	configs, err := fetch(ctx, target)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	for _, c := range configs {
		client(&b, c)
	}
	if len(configs) == 0 {
		b.WriteString("no xDS client in use\n")
	}
	_, err = out.Write(b.Bytes())
	return err
}

func client(b *bytes.Buffer, c *statuspb.ClientConfig) {
	fmt.Fprintf(b, "client %q", c.GetNode().GetId())
	if scope := c.GetClientScope(); scope != "" {
		fmt.Fprintf(b, " of %s", scope)
	}
	b.WriteByte('\n')
	for _, r := range entries(c) {
		resource(b, r)
	}
}

func resource(b *bytes.Buffer, r *entry) {
	fmt.Fprintf(b, "  %s %s: %s", shortName(r.GetTypeUrl()), r.GetName(), r.GetClientStatus())
	if r.GetXdsConfig() != nil {
		fmt.Fprintf(b, ", version %q of %s", r.GetVersionInfo(), r.GetLastUpdated().AsTime().Format("2006-01-02 15:04:05"))
	}
	b.WriteByte('\n')
	if e := r.GetErrorState(); e != nil {
		fmt.Fprintf(b, "    error: %s\n", e.GetDetails())
	}
	if r.GetXdsConfig() == nil {
		return
	}
	ignored, err := xdsresource.IgnoredFields(r.GetXdsConfig())
	if err != nil {
		fmt.Fprintf(b, "    cannot determine the ignored fields: %v\n", err)
	}
	for _, field := range ignored {
		what := "ignored"
		if field.Severity == xdsclient.SeverityWarning {
			what = "warning: ignored"
		}
		fmt.Fprintf(b, "    %s: %s\n", what, field)
	}
}

// shortName is the last part of a type's name.
func shortName(typeURL string) string { return typeURL[strings.LastIndexAny(typeURL, "./")+1:] }
