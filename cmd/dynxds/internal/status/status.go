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

	statuspb "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"

	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/typeurl"
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
	of := ""
	if scope := c.GetClientScope(); scope != "" {
		of = " of " + scope
	}
	line(b, "client %q%s", c.GetNode().GetId(), of)
	for _, r := range entries(c) {
		resource(b, r)
	}
}

// line adds a line, in which what the process says has no control characters.
func line(b *bytes.Buffer, format string, args ...any) {
	b.WriteString(faults.Printable(fmt.Sprintf(format, args...), "\t"))
	b.WriteByte('\n')
}

func resource(b *bytes.Buffer, r *entry) {
	version := ""
	if r.GetXdsConfig() != nil {
		version = fmt.Sprintf(", version %q of %s", r.GetVersionInfo(), r.GetLastUpdated().AsTime().Format("2006-01-02 15:04:05"))
	}
	line(b, "  %s %s: %s%s", typeurl.Short(r.GetTypeUrl()), r.GetName(), r.GetClientStatus(), version)
	if e := r.GetErrorState(); e != nil {
		line(b, "    error: %s", e.GetDetails())
	}
	if r.GetXdsConfig() == nil {
		return
	}
	ignored, err := xdsresource.IgnoredFields(r.GetXdsConfig())
	if err != nil {
		line(b, "    cannot determine the ignored fields: %v", err)
	}
	for _, field := range ignored {
		what := "ignored"
		if field.Severity == xdsclient.SeverityWarning {
			what = "warning: ignored"
		}
		line(b, "    %s: %s", what, field)
	}
}
