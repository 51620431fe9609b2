// Package revise plans changes of the documents in a store, and undoes them.
//
// Apply and Rollback read the store and return a Plan: which documents change, whether the whole mesh that
// results is valid, and what clients will get differently. Nothing is written before Plan.Commit, which fails
// if others have written the same documents since the plan was made.
package revise
