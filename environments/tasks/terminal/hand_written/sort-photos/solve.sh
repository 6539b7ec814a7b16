#!/bin/bash
set -e
cd photos
shopt -s nullglob
for picture in ./*.JPG; do
  name=$(basename "$picture" .JPG)
  if [ ! -e "./$name.txt" ]; then
    mkdir -p undated
    mv "$picture" undated/
    continue
  fi
  date=$(sed -n 's/^date: //p' "./$name.txt")
  year=${date%%-*}
  mkdir -p "$year"
  mv "$picture" "$year/$date $name.jpg"
  mv "./$name.txt" "$year/$date $name.txt"
done
