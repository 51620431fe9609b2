// Package status prints the resources of a process's xDS clients, from its Client Status Discovery
// Service (gRFC A40), and the fields of these resources that dynxds ignores.
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
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/xdsclient"
)

// maxAnswer bounds the response, in bytes: it has every resource of the process.
const maxAnswer = 256 << 20

// Show fetches the status at a gRPC target, without encryption, and prints it to out. The error names
// the target.
func Show(ctx context.Context, target string, out io.Writer) error {
	cc, err := grpc.NewClient(target, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)))
	if err != nil {
		return fmt.Errorf("cannot ask %q: %w", target, err)
	}
	defer cc.Close()
	answer, err := statuspb.NewClientStatusDiscoveryServiceClient(cc).FetchClientStatus(ctx, new(statuspb.ClientStatusRequest))
	if err != nil {
		return fmt.Errorf("%s has no Client Status Discovery Service to ask: %w; does the process call csds.Register?", target, err)
	}
	var b bytes.Buffer
	for _, c := range answer.GetConfig() {
		client(&b, c)
	}
	if len(answer.GetConfig()) == 0 {
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
	for _, r := range c.GetGenericXdsConfigs() {
		resource(b, r)
	}
}

func resource(b *bytes.Buffer, r *statuspb.ClientConfig_GenericXdsConfig) {
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
