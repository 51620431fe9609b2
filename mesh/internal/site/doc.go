// Package site runs a control plane from a folder or a store, validates a folder, and shows what a client would
// get.
//
// Run connects the parts: folder.Reader or store.Source reads, publish.Publisher fills the store of a
// controlplane.Server, and serve.Server serves it. Documents that became faulty
// change nothing: clients keep the last good state, and the log has the errors with their lines.
package site
