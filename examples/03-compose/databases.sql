-- One for each application: each changes its own prices.
CREATE DATABASE shop;
CREATE DATABASE shop_group;
