// Command crdgen writes the CustomResourceDefinition of MeshHTTPRoutes, whose OpenAPI schema is what the reader of policies
// expects of an example that has every field:
//
//	go run ./internal/crdgen -o ../../deploy/kubernetes/crd.yaml
//
// What the reader checks beyond is found by the control plane, which writes it into the status.
package main

import (
	_ "embed"
	"flag"
	"fmt"
	"os"
)

func main() {
	out := flag.String("o", "", "the `file` to write")
	flag.Parse()
	text, err := generate()
	if err == nil {
		err = os.WriteFile(*out, text, 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "crdgen:", err)
		os.Exit(1)
	}
}
